"""`tunebook submit`, `status`, `stop`, `logs` and `fetch`: a laptop's view of a cluster's job."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from shlex import quote

from rich.table import Table

from search.commands.asked import default_name
from search.commands.options import tell_fields
from search.jobs.client import ENDED, FOLDER, SEARCH, Job, Jobs
from search.jobs.package import check_for_cluster, entrypoint, pack, variables
from search.jobs.parcel import unpacked
from search.record.home import NO_SEARCH, Home
from search.reporting import terminal
from search.study import STUDY_FILE, Study
from trainable.bench import Say, silent
from trainable.errors import UserError
from trainable.files.folders import temporary_folder
from trainable.files.store import name_in
from trainable.stages import stage
from trainable.terminal import visible_lines

# the variables that tell Ray to stop a job by one Ctrl-C, then a minute in which the search ends cleanly
STOP = {"RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": "60"}
STOP_SECONDS = 75.0
FETCH_SECONDS, STATUS_SECONDS = 300.0, 60.0
# so begins a line that Ray writes into a job's log, as while it prepares the job's environment
RAYS_OWN = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+\s+[A-Z]+ \w+\.py:\d+ -- ")


def submit(
    study: Study,
    address: str,
    *,
    environment: Sequence[str] = (),
    may_fetch: bool = False,
    say: Say = silent,
) -> str:
    """Start a search as a job of the cluster and return the job's name.

    Submitted again, the same study goes on where it stopped. Raises UserError, before anything is sent, where
    the study refers to something on this machine.
    """
    study = study.model_copy(update={"name": study.name or default_name(study)})
    check_for_cluster(study)
    variables_there = {**STOP, **variables(environment, dict(os.environ))}
    jobs = Jobs(address)
    name, folder = f"{study.name}-{secrets.token_hex(3)}", Home.of(study).address
    flags = ["--address", "auto", "--resume", *(["--download"] if may_fetch else [])]
    with temporary_folder() as folder_sent:
        pack(folder_sent)
        study.write(folder_sent)
        runtime_env = {"working_dir": str(folder_sent), "env_vars": variables_there}
        metadata = {SEARCH: str(study.name), FOLDER: folder}
        with stage("sending the search to the cluster"):
            jobs.submit(entrypoint("search", "search", STUDY_FILE, *flags), name, runtime_env, metadata)
    say(f"job {name}: the search {study.name}, in {folder} on the cluster")
    return name


def follow(address: str, name: str) -> str:
    """Print a job's log as it comes, from its beginning; return the state in which it ended.

    Ctrl-C ends the following, not the job.
    """
    jobs = Jobs(address)
    printed = False
    named = f"{quote(name)} --address {quote(address)}"
    goes_on = f"job {name} goes on; `tunebook logs --follow {named}` shows it again"

    try:
        with ExitStack() as waiting:
            waiting.enter_context(stage("waiting for the first line of the job"))  # Ray makes its environment
            for text in jobs.tail(name):
                waiting.close()
                print(visible_lines(text), end="", flush=True)
                printed = True
    except KeyboardInterrupt:
        terminal.say(f"\n{goes_on}")
        raise
    except UserError as error:
        raise UserError(f"{error}; {goes_on}" if printed else str(error)) from None
    ended = jobs.one(name).status
    terminal.say(f"job {name}: {ended.lower()}; `tunebook fetch {named}` copies its results here")
    return ended


def logs(address: str, name: str) -> None:
    """Print what a job has printed so far."""
    print(printed(address, name), end="")


def printed(address: str, name: str) -> str:
    """Return what a job has printed so far, without what would control a terminal."""
    return visible_lines(Jobs(address).log(name))


def submitted(address: str, name: str | None = None) -> list[Job]:
    """Return the searches that were submitted to a cluster, the latest first, or one of them."""
    jobs = Jobs(address)
    return jobs.all() if name is None else [jobs.one(name)]


def status(address: str, name: str | None = None, *, as_json: bool = False) -> None:
    """Print a table of the cluster's searches, or the same as JSON.

    For one job also its last line, and what `tunebook show` prints there: trials and machines.
    """
    listed = submitted(address, name)
    if as_json:
        tell_fields({"jobs": [_job_tree(job) for job in listed]})
        return
    if not listed:
        terminal.say(f"{address}: no search has been submitted to this cluster")
        return
    table = Table(
        "job", "search", "state", "began", "took", "folder on the cluster", box=None, pad_edge=False
    )
    for job in listed:
        metadata, began = job.metadata, ""
        if job.start_time is not None:
            began = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.start_time / 1e3))
        table.add_row(
            job.submission_id,
            metadata.get(SEARCH, ""),
            job.status.lower(),
            began,
            _took(job),
            metadata.get(FOLDER, ""),
        )
    terminal.console().print(table)
    if name is not None:
        (job,), jobs = listed, Jobs(address)
        for line in _without_rays(jobs.log(name))[-1:] or [job.message or ""]:
            terminal.say(line)
        if (there := job.metadata.get(FOLDER)) is not None:
            terminal.say(_shown(jobs, job, there))


def _job_tree(job: Job) -> dict[str, object]:
    metadata = job.metadata
    return {
        "job": job.submission_id,
        "search": metadata.get(SEARCH),
        "state": job.status.lower(),
        "began": None if job.start_time is None else job.start_time / 1e3,  # seconds, as time.time()
        "ended": None if job.end_time is None else job.end_time / 1e3,
        "folder": metadata.get(FOLDER),
    }


def _shown(jobs: Jobs, job: Job, there: str) -> str:
    """Return what `tunebook show` prints of a search on the cluster, or that it has not begun."""
    try:
        text = _printed(jobs, job, "show", STATUS_SECONDS, "search", "show", there)
    except UserError as error:
        if NO_SEARCH not in str(error):
            raise
        return f"nothing to show yet: {error}"
    return "\n".join(_without_rays(text))


def stop(address: str, name: str, say: Say = silent) -> str:
    """Have a search end cleanly, as with Ctrl-C, and wait for it; return the state in which it is then."""
    jobs = Jobs(address)
    job = jobs.one(name)
    if job.status not in ENDED:
        jobs.stop(name)
    with stage("waiting for the search to end"):
        state = jobs.ended(name, STOP_SECONDS).status
    again = f"; submit the same study with --name {job.metadata.get(SEARCH, 'NAME')} to go on"
    outcomes = {"STOPPED": f"stopped{again}", "SUCCEEDED": "had finished", "FAILED": "had failed"}
    say(f"job {name}: {outcomes.get(state, f'is still {state.lower()} after {STOP_SECONDS:g} s')}")
    return state


def fetch(
    address: str, name: str, out: Path | None = None, there: str | None = None, say: Say = silent
) -> Path:
    """Copy a search's recipe, report and journal here; return the folder, which `tunebook show` reads.

    `there` is the search's folder on the cluster; a job that `submit` started knows it. Checkpoints stay on
    the cluster. A search that is still running is copied in its current state.
    """
    jobs = Jobs(address)
    job = jobs.one(name)
    there = there or job.metadata.get(FOLDER)
    if there is None:
        raise UserError(
            f"{name}: was not started by `tunebook submit`; give its search's folder by --from DIR"
        )
    folder = out or Path(name_in(there))
    if folder.exists() and (folder.is_file() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists already; name another folder with -o")
    names = unpacked(_printed(jobs, job, "fetch", FETCH_SECONDS, "search.jobs.parcel", there), folder)
    say(f"{folder}: {', '.join(sorted(names))}; `tunebook show {quote(str(folder))}` shows the search")
    return folder


def _printed(jobs: Jobs, job: Job, what: str, seconds: float, *words: str) -> str:
    """Return what `python -m WORDS` prints on the cluster of a search's job, as a job of its own.

    Raises UserError where it fails, or takes more than so many seconds.
    """
    name = f"{job.submission_id}-{what}-{secrets.token_hex(3)}"
    with temporary_folder() as folder_sent:
        pack(folder_sent)
        runtime_env = {
            "working_dir": str(folder_sent),
            "env_vars": job.runtime_env.get("env_vars", {}),
        }
        with stage("asking the cluster"):
            jobs.submit(entrypoint(*words), name, runtime_env, {})
            ended = jobs.ended(name, seconds)
    if ended.status not in ENDED:
        jobs.stop(name)
        raise UserError(
            f"{job.submission_id}: `{what}` took more than {seconds:g} s on the cluster: {ended.message}"
        )
    text = jobs.log(name)
    jobs.forget(name)
    if ended.status != "SUCCEEDED":
        said = _without_rays(text)[-1:] or [ended.message or "no output"]
        raise UserError(f"{job.submission_id}: `{what}` failed on the cluster: {said[0]}")
    return text


def _without_rays(log: str) -> list[str]:
    """Return the lines of a job's log that are not Ray's own, nor empty at the beginning or the end."""
    own = [line for line in log.splitlines() if not RAYS_OWN.match(line)]
    return "\n".join(own).strip("\n").splitlines()


def _took(job: Job) -> str:
    if job.start_time is None:
        return ""
    seconds = int((job.end_time or time.time() * 1e3) / 1e3 - job.start_time / 1e3)
    return f"{seconds // 3600}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}"
