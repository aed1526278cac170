"""Drives a search from its first check to its last event: start, resume, end, and the files it leaves."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Literal

from search.deciding.budget import extended
from search.deciding.finalists import final_of
from search.deciding.ledger import Ledger
from search.deciding.make import make_sampler, make_scheduler
from search.facts.hardware import Hardware, local_hardware
from search.facts.installed import git_commit, versions
from search.followers.experiment import deleted_experiment
from search.followers.in_store import InStore
from search.followers.mirror import Mirror
from search.followers.uri import resolve_tracking_uri
from search.record.folder import read_search
from search.record.home import BEST_FILE, LOG_FILE, Home
from search.record.journal import DriverStart, Journal
from search.record.lease import Lease
from search.record.storage import driving
from search.results import report
from search.results.search import Search
from search.results.teachers import with_teacher
from search.running.cluster import joined, local_ray
from search.running.ending import State, how_it_ended, leave_report, write_results
from search.running.following import Followed, Following, May, tracker_of
from search.running.log_file import logging_to
from search.running.machines import Machines, asked, fit_to_train
from search.running.networks import what_is_compiled
from search.running.prepare import Prepared, carried_code, prepare, prepare_again, write_facts
from search.running.private_ray import RayNotStarted
from search.running.raytune import run_trials
from search.running.room import ClusterRoom, FixedRoom, Room
from search.running.switch import StopSwitch
from search.running.taken_names import is_same_study, refuse_existing
from search.running.trial_checkpoints import drop_all_checkpoints
from search.study import Study, default_name
from search.study.code import NO_CODE, Code
from search.study.study import MOST_TRIALS, MachinesChoice
from search.verdicts.pruning_audit import sampled
from spaces.domains import listed
from spaces.facts import Facts
from trainable.data import DataSet
from trainable.errors import UserError
from trainable.stages import stage, waited_for, waited_seconds

# How a driver ends. Three of the words are for a search that is interrupted, by SIGTERM, by the end of its
# terminal (SIGHUP) or by a fault.
Closing = Literal["finished", "interrupted", "terminated", "hung up", "broken off", "failed"]
ENDED_BY: dict[int, Closing] = {signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}

DRAIN_SECONDS = 60.0
"""For so long the end of a search waits for MLflow before it leaves the rest to `tunebook sync`."""
CATCH_UP_SECONDS = 15.0

logger = logging.getLogger(__name__)


@waited_for()
def search(
    study: Study,
    *,
    address: str | None = None,
    download: bool = False,
    again: bool = False,
    code: Code = NO_CODE,
) -> Closing:
    """Run a new search and return how it ended: finished, interrupted or failed.

    With `again`, an existing search of the same name and study goes on instead: a program that starts
    searches may start one again without knowing how far it came. `code` holds what the
    study uses of a person's own. Raises UserError when the study, the data or the resources are wrong, and
    while another driver is at work on a search of this name; nothing is left behind then.
    """
    if again and study.name is None:
        raise UserError("--resume: needs the search's name; give --name NAME")
    study = resolved_study(study)
    home = Home.of(study)
    with driving(home, report.say) as lease:
        if again and is_same_study(home, study):
            return _go_on(home, lease, address=address, download=download, code=code, choice=study.machines)
        refuse_existing(home, study)
        with _hardware(address) as hardware, _asked(study, home, hardware, code) as machines:
            prepared = prepare(
                study,
                home,
                hardware,
                download=download,
                say=report.say,
                code=code,
                on_data=_sends_sample(machines, study),
            )
            prepared = fit_to_train(prepared, machines, report.say)
            if (words := deleted_experiment(study)) is not None:
                raise UserError(words)
            write_facts(prepared)
            study.write(home.folder)  # last: a folder with a study in it can be resumed
            return _drive(prepared, hardware, lease, _deadline(study, spent=0.0), machines=machines)


@waited_for()
def resume(folder: Path, *, address: str | None = None, download: bool = False) -> Closing:
    """Go on with the search in a folder, unless it is finished; return the state in which it ends."""
    home = _home_to_write(folder.absolute())
    with driving(home, report.say) as lease:
        return _go_on(home, lease, address=address, download=download)


@waited_for()
def audit_pruning(
    folder: Path, share: float, *, address: str | None = None, download: bool = False
) -> Closing:
    """Train a sample of the trials that were stopped at rungs to their end; return how that ended.

    `share` in (0, 1] of each rung's, rounded up. An audit that is interrupted is continued by `resume`, and
    takes no part of a budget of hours. Raises UserError for a search that is not finished, and for one that
    has nothing left to train.
    """
    home = _home_to_write(folder.absolute())
    with driving(home, report.say) as lease:
        search = Search(home.folder)
        if search.state != "finished":
            raise UserError(
                f"{home.address}: pruning is audited when a search is finished; it is {search.state}"
            )
        chosen = sampled(search.progress, share, search.study.seed)
        if not chosen:
            raise UserError(
                f"{home.address}: no stopped trial is left to train to its end at --share {share:g}"
            )
        report.say(f"{len(chosen)} of the stopped trials are trained to epoch {search.study.budget.epochs}")
        return _go_on(home, lease, address=address, download=download, audited=chosen)


@waited_for()
def extend(
    folder: Path,
    trials: int,
    *,
    address: str | None = None,
    download: bool = False,
    code: Code = NO_CODE,
) -> Closing:
    """Go on with a search, which may have ended, with so many more trials; return the state in which it ends.

    The study's hours count anew. `code` holds what the study uses of a person's own. Raises UserError for
    more trials than any search may have, and where a function is missing that the search was begun with.
    """
    home = _home_to_write(folder.absolute())
    with driving(home, report.say) as lease:
        search = Search(home.folder)
        budget = extended(search.record, search.study.budget.trials, trials)
        if budget > MOST_TRIALS:
            raise UserError(f"--trials {trials}: expected at most {MOST_TRIALS:,} in all, got {budget:,}")
        if search.code is not None and (lacks := search.code.lacking(code)):
            call = report.extend_call(home.address, trials, search.study, search.code)
            raise UserError(f"this search uses code of yours, {listed(lacks)}; from Python: {call}")
        return _go_on(home, lease, address=address, download=download, code=code, extended_to=budget)


def sync(folder: Path) -> bool:
    """Send MLflow, and the search's store, what they lack; return whether nothing is left to send."""
    home = _home_to_write(folder.absolute())
    with driving(home, report.say) as lease:
        return _sync(home, lease)


def _home_to_write(folder: Path) -> Home:
    """Return the home of the search in a folder. Raises UserError for a copy of one that is in a store."""
    home = Home.of(read_search(folder))
    if home.store is not None and home.folder != folder:
        raise UserError(
            f"{folder}: its study.yaml says that this search is stored in {home.address}: give that address"
        )
    return Home(folder, home.store)


def resolved_study(study: Study) -> Study:
    """Return the study with a name, absolute paths and tracking URI, so that it means the same anywhere."""
    named = with_teacher(study).resolved(study.name or default_name(study))
    uri = resolve_tracking_uri(study.tracking.uri, named.storage, os.environ)
    return named.model_copy(update={"tracking": named.tracking.model_copy(update={"uri": uri})})


def make_ledger(prepared: Prepared, journal: Journal) -> Ledger:
    """Return the search's memory, rebuilt from what the journal holds."""
    study = prepared.study
    return Ledger(
        journal,
        prepared.space,
        make_sampler(
            prepared.space,
            study.sampler.kind,
            study.seed,
            study.objective.direction,
            by_time=study.budget.hours is not None,
        ),
        make_scheduler(prepared.space, prepared.pruning, study.objective.direction),
        trials=study.budget.trials,
        epochs=study.budget.epochs,
        metric=study.objective.metric,
        why=prepared.pruning.why,
        constraints=study.objective.constraints,
        first=prepared.first,
        finalists=prepared.final.finalists,
    )


def _hardware(address: str | None) -> contextlib.AbstractContextManager[Hardware]:
    """Give the block what the search may use: this machine, or the cluster at `address`, which is joined."""
    return contextlib.nullcontext(local_hardware()) if address is None else joined(address)


def _asked(
    study: Study, home: Home, hardware: Hardware, code: Code, facts: Facts | None = None
) -> contextlib.AbstractContextManager[Machines | None]:
    """Give the block the machines of the cluster, which are asked what they are like; None on this machine
    alone. With `facts` a trial gets what the search has decided."""
    if not hardware.cluster:
        return contextlib.nullcontext(None)
    return asked(study, hardware, home.storage, carried_code(code), facts)


def _sends_sample(machines: Machines | None, study: Study) -> Callable[[DataSet], None]:
    if machines is None:
        return lambda data: None
    return partial(machines.send_sample, refuse=study.machines.unfit == "refuse")


def _go_on(
    home: Home,
    lease: Lease | None,
    *,
    address: str | None,
    download: bool,
    code: Code = NO_CODE,
    audited: Sequence[int] = (),
    extended_to: int | None = None,
    choice: MachinesChoice | None = None,
) -> Closing:
    """Do the work of `resume`, `extend` and an audit of pruning, once this process is the only driver.

    `choice` says what becomes of unfit machines, in place of the search's study.
    """
    search = Search(home.folder)
    for change in search.code.changes(code) if search.code is not None else ():
        report.say(change)
    if search.state == "finished" and not audited and extended_to is None:
        shows = f"`tunebook show {quote(home.address)}` shows it"
        report.say(f"{home.address}: this search is finished; {shows}")
        _sync(home, lease)
        return "finished"
    study = read_search(home.folder)
    if choice is not None:
        study = study.model_copy(update={"machines": choice})
    with _hardware(address) as hardware, _asked(study, home, hardware, code, search.facts) as machines:
        prepared = prepare_again(study, home, search, hardware, download=download, say=report.say, code=code)
        if machines is not None:
            machines.send_sample(prepared.data, refuse=False)
        prepared = fit_to_train(prepared, machines, report.say)
        if (words := deleted_experiment(study)) is not None:
            report.say(f"warning: {words}; until then the search goes on, and MLflow lacks what is new")
        if audited or (search.progress.is_being_audited and extended_to is None):
            return _drive(prepared, hardware, lease, None, audited, machines=machines)
        spent = search.record.seconds_of_budget if extended_to is None else 0.0
        deadline = _deadline(study, spent)
        return _drive(prepared, hardware, lease, deadline, extended_to=extended_to, machines=machines)


def _sync(home: Home, lease: Lease | None) -> bool:
    search = Search(home.folder)
    settled = search.record.settled  # read first: where the journal is damaged, nothing is written
    backlogs = [tracker_of(home, read_search(home.folder)).sync()]
    if settled is not None:
        backlogs.append(Mirror(home.folder, search.study, search.space).sync())
    if (in_store := _in_store(home, lease)) is not None:
        backlogs.append(in_store.sync())
    for backlog in backlogs:
        report.say(str(backlog))
    return all(backlog.complete for backlog in backlogs)


def _drive(
    prepared: Prepared,
    hardware: Hardware,
    lease: Lease | None,
    deadline: float | None,
    audited: Sequence[int] = (),
    extended_to: int | None = None,
    machines: Machines | None = None,
) -> Closing:
    """Do everything from the first event of this driver to its last, which comes at the deadline at latest.

    Trials that are `audited` are trained to their end, and nothing else. `extended_to` is the budget's trials
    from now on.

    A private Ray is started only here, after every check has passed, so that a mistake is reported at once.
    """
    study, home, folder = prepared.study, prepared.home, prepared.home.folder
    name = str(study.name)
    in_store = _in_store(home, lease)
    store = None if home.store is None else home.store.uri
    followed = Followed(folder, store, study, prepared.space, prepared.carried.model)
    followed.tracker()  # its faults are told before anything begins
    switch = StopSwitch(deadline, lease)
    if switch.lost:
        raise UserError(f"{lease}: another driver has taken this search over")
    build, info = prepared.code.model, prepared.data.info
    for line in what_is_compiled(prepared.space, info, build, download=prepared.download):
        report.say(line)
    with Journal(folder) as journal, logging_to(folder / LOG_FILE):
        ledger = make_ledger(prepared, journal)
        installed = versions()
        trial = prepared.per_trial
        start = DriverStart(
            seconds=waited_seconds(), slots=prepared.concurrent, gpus=trial.gpus * trial.workers
        )
        ledger.begin(name, installed, git_commit(Path.cwd()), prepared.weights, start)
        ledger.audit(audited)
        if extended_to is not None:
            ledger.extend(extended_to)
        asked = study.with_trials(ledger.budget)
        final = final_of(prepared.final.finalists, asked, prepared.pruning)
        logger.info("%s on %s, %s", name, hardware, installed)
        view = report.LiveView(asked, prepared.pruning, final, prepared.concurrent, folder)
        with _following(followed, switch, in_store) as following, switch.listening():
            with view:
                _train(prepared, hardware, machines, ledger, switch, view, in_store)
            if switch.lost:  # this driver may write nothing of the search any more
                report.say(f"{lease}: another driver has taken this search over, and goes on with it")
                return "interrupted"
            state = _close(prepared, ledger, switch, following)
            report.closing(Search(folder), folder / BEST_FILE, switch.fault)
            if state != "interrupted":
                with stage("writing the report"):
                    leave_report(folder)
        backlogs = [*following.backlogs, *([in_store.backlog()] if in_store is not None else [])]
    report.undelivered(backlogs, home.address)
    return _closing(state, switch)


def _train(
    prepared: Prepared,
    hardware: Hardware,
    machines: Machines | None,
    ledger: Ledger,
    switch: StopSwitch,
    view: report.LiveView,
    in_store: InStore | None,
) -> None:
    """Train all trials, or as many as can be before the switch says stop; a fault of Ray's switches it."""
    is_stored = in_store.has_stored if in_store is not None else None
    if machines is None:
        room: Room = FixedRoom(prepared.concurrent, hardware.fits(prepared.per_trial))
    else:
        room = ClusterRoom(prepared.per_trial, prepared.study.concurrent, machines.hardware)
    again = report.how_to_go_on(Search(prepared.home.folder))
    ended = f"Ray has died on this machine, and ended the search; {again}"
    try:
        # again, once Ray has started: its C++ part sets a handler of SIGTERM, which aborts this process
        with local_ray(hardware, switch, ended) as died, switch.listening(), switch.stopped_by_disk():
            if not switch.stops:
                with _first_epoch_awaited(view) as progress:
                    run_trials(
                        prepared,
                        ledger,
                        switch,
                        progress,
                        room,
                        is_stored=is_stored,
                        died=died,
                        say=report.say,
                        machines=machines,
                    )
    except RayNotStarted as error:
        switch.break_off(str(error))


@contextlib.contextmanager
def _first_epoch_awaited(view: report.LiveView) -> Iterator[Callable[[], None]]:
    """Give the block what updates the view, and show that a first epoch is waited for until one is there."""
    with contextlib.ExitStack() as waiting:
        waiting.enter_context(stage("starting a process for the first trial, and training its first epoch"))

        def update() -> None:
            view.update()
            if view.has_trained:
                waiting.close()

        yield update


def _close(prepared: Prepared, ledger: Ledger, switch: StopSwitch, following: Following) -> State:
    """Write what a search leaves, and its last event, as far as the disk allows; return its state."""
    folder = prepared.home.folder
    state, reason = how_it_ended(ledger, switch, prepared)
    drop_all_checkpoints(ledger, prepared, switch)
    following.catch_up(CATCH_UP_SECONDS)  # so that the recipe can name its MLflow run
    with switch.stopped_by_disk():
        write_results(folder, state)
    if switch.fault is not None:
        state, reason = "interrupted", switch.fault
    logger.info("%s: %s", state, reason or "every trial has ended")
    with switch.stopped_by_disk():
        ledger.close(state, reason)  # last: a finished search has its results
    return state


def _closing(state: State, switch: StopSwitch) -> Closing:
    """Return how this driver ended, from the search's state."""
    if switch.fault is not None:
        return "broken off"
    return ENDED_BY.get(switch.signals[0], state) if switch.interrupted and state == "interrupted" else state


def _in_store(home: Home, lease: Lease | None) -> InStore | None:
    """Return the consumer that copies the search to its store; None where it has no store."""
    return InStore(home.folder, home.store, lease) if home.store is not None and lease is not None else None


@contextlib.contextmanager
def _following(followed: Followed, switch: StopSwitch, in_store: InStore | None) -> Iterator[Following]:
    """Send what the journal holds to MLflow and others in the block, and let them catch up at its end.

    They do not catch up where another driver has taken the search over: then the journal here is no longer
    the search's. A driver that takes over goes on from the store: what MLflow had beyond that would be there
    twice.
    """
    if in_store is None:
        following = Following(followed)
    else:
        in_store.start(lambda: switch.sure)
        following = Following(followed, lambda: May(switch.sure, in_store.stored_bytes))
    try:
        yield following
    finally:
        following.close(DRAIN_SECONDS, rest=not switch.lost)
        if in_store is not None:  # last: it copies what the others wrote
            in_store.close(DRAIN_SECONDS, rest=not switch.lost)


def _deadline(study: Study, spent: float) -> float | None:
    """Return when the budget of hours is spent, on the monotonic clock; earlier drivers have spent some."""
    if study.budget.hours is None:
        return None
    return time.monotonic() + max(0.0, study.budget.hours * 3600.0 - spent)
