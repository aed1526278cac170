"""The commands for searches that run as jobs of a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from search.commands.options import (
    FAILED,
    INTERRUPTED,
    NewSearchOptions,
    aside,
    command,
    tell_fields,
)
from trainable.train_options import Json, study_values

app = typer.Typer()

Dashboard = Annotated[
    str,
    typer.Option(
        metavar="http://HEAD:8265",
        envvar="RAY_API_SERVER_ADDRESS",
        help="The dashboard of the cluster's head.",
    ),
]
JobName = Annotated[
    str, typer.Argument(metavar="JOB", help="A job's name, as `submit` and `status` print it.")
]
# the exit code for the state in which a job ended; any other state is a failure
EXIT_CODES_OF_JOBS = {"SUCCEEDED": 0, "STOPPED": INTERRUPTED}


@dataclass(frozen=True, kw_only=True)
class SubmitOptions(NewSearchOptions):
    """What `tunebook submit` is asked for."""

    study: Annotated[
        Path, typer.Argument(metavar="STUDY.yaml", help="A study; its paths are paths on the cluster.")
    ]
    address: Dashboard
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=VALUE]", help="Pass an environment variable on; may be repeated."),
    ] = None
    detach: Annotated[bool, typer.Option("--detach", help="Do not follow the job's log.")] = False
    as_json: Json = False


@dataclass(frozen=True)
class LogsOptions:
    """What `tunebook logs` is asked for."""

    job: JobName
    address: Dashboard
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the job ends.")] = False


@dataclass(frozen=True)
class FetchOptions:
    """What `tunebook fetch` is asked for."""

    job: JobName
    address: Dashboard
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="A new folder; default: ./NAME.")
    ] = None
    folder: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="The search's folder on the cluster, for a job that `submit` did not start.",
        ),
    ] = None
    as_json: Json = False


@command(app, "tunebook submit study.yaml --address http://head:8265 --name flowers")
def submit(options: SubmitOptions) -> None:
    """Search on a Ray cluster, as a job that needs this machine no more, and follow its log."""
    from search.commands.asked import settings_of, study_asked

    address = options.address
    asked = study_asked(options.study, study_values(options) | settings_of(options.settings or ()))
    from search.jobs import commands
    from search.reporting import terminal

    passed_on, may_fetch = options.env or (), options.download
    with aside(options.as_json):
        job = commands.submit(asked, address, environment=passed_on, may_fetch=may_fetch, say=terminal.say)
        ended = None if options.detach else commands.follow(address, job)
    if options.as_json:
        tell_fields({"job": job, "state": ended and ended.lower()})
    if ended is not None:
        raise typer.Exit(EXIT_CODES_OF_JOBS.get(ended, FAILED))


@command(app, "tunebook status --address http://head:8265")
def status(
    address: Dashboard,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Show only this job.")] = None,
    json: Json = False,
) -> None:
    """Show the searches that were submitted to a cluster, or the state of one of them."""
    from search.jobs import commands

    commands.status(address, job, as_json=json)


@command(app, "tunebook stop flowers-3f9c1a --address http://head:8265")
def stop(job: JobName, address: Dashboard, json: Json = False) -> None:
    """Stop a submitted search cleanly; submit it again to resume it."""
    from search.jobs import commands
    from search.reporting import terminal

    with aside(json):
        state = commands.stop(address, job, terminal.say)
    if json:
        tell_fields({"job": job, "state": state.lower()})
    raise typer.Exit(0 if state in ("STOPPED", "SUCCEEDED") else FAILED)


@command(app, "tunebook logs flowers-3f9c1a --follow --address http://head:8265")
def logs(options: LogsOptions) -> None:
    """Print what a submitted search has printed."""
    from search.jobs import commands

    if options.follow:
        raise typer.Exit(EXIT_CODES_OF_JOBS.get(commands.follow(options.address, options.job), FAILED))
    commands.logs(options.address, options.job)


@command(app, "tunebook fetch flowers-3f9c1a -o flowers-search --address http://head:8265")
def fetch(options: FetchOptions) -> None:
    """Copy the best recipe, the report and the journal of a submitted search to this machine."""
    from search.jobs import commands
    from search.reporting import terminal

    with aside(options.as_json):
        folder = commands.fetch(options.address, options.job, options.out, options.folder, terminal.say)
    if options.as_json:
        tell_fields({"folder": str(folder)})
