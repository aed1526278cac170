"""Drives a search from its first check to its last event: start, resume, audit, extend."""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Literal, NamedTuple

from search.deciding.audited import sampled
from search.deciding.finalists import final_of
from search.deciding.goals import goals_of
from search.deciding.ledger import Ledger, extended
from search.deciding.make import make_sampler, make_scheduler
from search.facts.hardware import Hardware, local_hardware
from search.facts.installed import git_commit, versions
from search.record.code import extend_call
from search.record.folder import home_to_write, read_search
from search.record.home import LOG_FILE, Home
from search.record.journal import DriverStart, Journal
from search.record.lease import Lease
from search.record.storage import driving
from search.record.stored_search import StoredSearch
from search.record.trials import GPU_HOURS_SPENT, HOURS_SPENT, PRICE_SPENT
from search.running.cluster import joined, local_ray
from search.running.guests import NO_GUESTS, Display, EndState, Followed, Followers, Guests
from search.running.log_file import logging_to
from search.running.machines import Machines, asked, fit_to_train
from search.running.networks import what_is_compiled
from search.running.prepare import (
    Prepared,
    decide,
    is_same_study,
    load,
    pickled,
    prepare_again,
    refuse_existing,
    write_facts,
)
from search.running.private_ray import RayNotStarted
from search.running.raytune import Hooks, Pool, run_trials
from search.running.slots import ClusterSlots, FixedSlots, Slots
from search.running.switch import StopSwitch
from search.running.trial_checkpoints import drop_all_checkpoints, stored_history
from search.study import Study
from search.study.code import NO_CODE, Code
from search.study.study import MOST_TRIALS, MachinesChoice
from spaces.domains import listed
from spaces.facts import Facts
from trainable.bench import Bench
from trainable.data import DataSet
from trainable.errors import UserError
from trainable.files.store import ATTEMPTS
from trainable.stages import stage, waited_for, waited_seconds

# How a driver ends. Three of the words are for a search that is interrupted, by SIGTERM, by the end of its
# terminal (SIGHUP) or by a fault.
Closing = Literal["finished", "interrupted", "terminated", "hung up", "broken off", "failed"]
ENDED_BY: dict[int, Closing] = {signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
CATCH_UP_SECONDS = 15.0  # the end of a search waits so long for its followers before it writes its results

logger = logging.getLogger(__name__)


class Fleet(NamedTuple):
    """What trials train on: this machine, or the machines of a cluster."""

    hardware: Hardware
    machines: Machines | None  # None: this machine alone

    def send_sample(self, data: DataSet, *, refuse: bool) -> None:
        """Have the machines of a cluster read some of the images. With `refuse` it raises UserError for one
        that has answered, and cannot train."""
        if self.machines is not None:
            self.machines.send_sample(data, refuse=refuse)


class Errand(NamedTuple):
    """What a driver has to do beyond the trials of its search's budget."""

    audited: Sequence[int] = ()  # stopped trials that are trained to their end, and nothing else is
    extended_to: int | None = None  # the trials of the budget from now on


NOTHING_MORE = Errand()


class TimeLimit(NamedTuple):
    """What a budget of time leaves to a driver."""

    deadline: float | None = None  # on the monotonic clock
    gpu_hours: float | None = None  # of all drivers together, since the last extension


NO_LIMIT = TimeLimit()


@dataclass(frozen=True)
class Driver:
    """What drives a search, alone: two never write one journal. Each method ends with the search's state.

    All raise UserError where the study, the data or the resources are wrong, and while another driver is at
    work on the search; nothing has been written then.
    """

    bench: Bench
    guests: Guests = NO_GUESTS
    address: str | None = None  # of a Ray cluster; None: this machine
    code: Code = field(default=NO_CODE)  # what the study uses of a person's own
    # yields lines on what a new search does, and takes; asked when all is decided, before anything is written
    plan: Callable[[Prepared], Iterable[str]] = lambda prepared: ()
    # hears of a new search on this machine that has come to its end, and when its plan was told, in seconds
    # since 1970
    ended: Callable[[Prepared, float], None] = lambda prepared, told: None

    @waited_for()
    def search(self, study: Study, *, again: bool = False) -> Closing:
        """Run a new search of a resolved study, with a name, and return how it ended.

        With `again`, an existing search of the same name and study goes on instead: a program that starts
        searches may start one again without knowing how far it came.
        """
        home = Home.of(study)
        with driving(home, self.bench.say) as lease:
            if again and is_same_study(home, study):
                return self._go_on(home, lease, choice=study.machines)
            refuse_existing(home, study)
            with self._fleet(study, home) as fleet:
                prepared, told = self._prepared(study, home, fleet), time.time()
                if (words := self.guests.refusal(study)) is not None:
                    raise UserError(words)
                write_facts(prepared)
                study.write(home.folder)  # last: a folder with a study in it can be resumed
                ended = self._drive(prepared, fleet, lease, _time_limit(study, spent=0.0))
                if ended == "finished" and fleet.machines is None:
                    self.ended(prepared, told)
                return ended

    @waited_for()
    def prepare(self, study: Study) -> Prepared:
        """Prepare a new search of a resolved study, with a name, as `search` does, and train nothing.

        Nothing is written but caches.
        """
        home = Home.of(study)
        with self._fleet(study, home) as fleet:
            return self._prepared(study, home, fleet)

    @waited_for()
    def resume(self, folder: Path) -> Closing:
        """Go on with the search in a folder, unless it is finished."""
        home = home_to_write(folder.absolute())
        with driving(home, self.bench.say) as lease:
            return self._go_on(home, lease)

    @waited_for()
    def audit_pruning(self, folder: Path, share: float) -> Closing:
        """Train a sample of the trials that were stopped at rungs to their end.

        `share` in (0, 1] of each rung's, rounded up. An audit that is interrupted is continued by `resume`,
        and takes no part of a budget of hours. Raises UserError for a search that is not finished, and for
        one that has nothing left to train.
        """
        home = home_to_write(folder.absolute())
        with driving(home, self.bench.say) as lease:
            search = StoredSearch(home.folder)
            if search.state != "finished":
                raise UserError(
                    f"{home.address}: expected a search that is finished, got one that is {search.state}"
                )
            chosen = sampled(search.progress, share, search.study.seed)
            if not chosen:
                raise UserError(
                    f"{home.address}: no stopped trial is left to train to its end at --share {share:g}"
                )
            epochs = search.study.budget.epochs
            self.bench.say(f"{len(chosen)} of the stopped trials are trained to epoch {epochs}")
            return self._go_on(home, lease, Errand(audited=chosen))

    @waited_for()
    def extend(self, folder: Path, trials: int) -> Closing:
        """Go on with a search, which may have ended, with so many more trials.

        The study's hours count anew. Raises UserError for more trials than any search may have, and where a
        function is missing that the search was begun with.
        """
        home = home_to_write(folder.absolute())
        with driving(home, self.bench.say) as lease:
            search = StoredSearch(home.folder)
            budget = extended(search.record, search.study.budget.trials, trials)
            if budget > MOST_TRIALS:
                raise UserError(f"--trials {trials}: expected at most {MOST_TRIALS:,} in all, got {budget:,}")
            if search.code is not None and (lacks := search.code.lacking(self.code)):
                call = extend_call(home.address, trials, search.study, search.code)
                raise UserError(f"this search uses code of yours, {listed(lacks)}; from Python: {call}")
            return self._go_on(home, lease, Errand(extended_to=budget))

    def _prepared(self, study: Study, home: Home, fleet: Fleet) -> Prepared:
        """Decide and check everything for a new search, and say what it takes."""
        loaded = load(study, home, fleet.hardware, bench=self.bench, code=self.code, guests=self.guests)
        fleet.send_sample(loaded.data, refuse=study.machines.unfit == "refuse")
        prepared = fit_to_train(decide(loaded), fleet.machines)
        for line in self.plan(prepared):
            self.bench.say(line)
        return prepared

    @contextlib.contextmanager
    def _fleet(self, study: Study, home: Home, facts: Facts | None = None) -> Iterator[Fleet]:
        """Join the cluster, if there is one, and have its machines asked what they are like. With `facts` a
        trial gets what the search has decided."""
        if self.address is None:
            yield Fleet(local_hardware(), None)
            return
        with joined(self.address) as hardware:
            if not hardware.cluster:
                yield Fleet(hardware, None)
                return
            with asked(study, hardware, home.storage, pickled(self.code), facts) as machines:
                yield Fleet(hardware, machines)

    def _go_on(
        self,
        home: Home,
        lease: Lease | None,
        errand: Errand = NOTHING_MORE,
        *,
        choice: MachinesChoice | None = None,
    ) -> Closing:
        """Prepare a search that exists, and drive it, once this process is the only driver.

        `choice` says what becomes of unfit machines, in place of the search's study.
        """
        search = StoredSearch(home.folder)
        for change in search.code.changes(self.code) if search.code is not None else ():
            self.bench.say(change)
        if search.state == "finished" and errand == NOTHING_MORE:
            shows = f"`tunebook show {quote(home.address)}` shows it"
            self.bench.say(f"{home.address}: this search is finished; {shows}")
            self.guests.sync(home, lease)
            return "finished"
        study = read_search(home.folder)
        if choice is not None:
            study = study.model_copy(update={"machines": choice})
        with self._fleet(study, home, search.facts) as fleet:
            prepared = prepare_again(
                study, search, fleet.hardware, bench=self.bench, code=self.code, guests=self.guests
            )
            fleet.send_sample(prepared.data, refuse=False)
            prepared = fit_to_train(prepared, fleet.machines)
            if (words := self.guests.refusal(study)) is not None:
                self.bench.say(
                    f"warning: {words}; until then the search goes on, and MLflow lacks what is new"
                )
            is_audit = errand.audited or (search.progress.is_being_audited and errand.extended_to is None)
            spent = search.record.seconds_of_budget if errand.extended_to is None else 0.0
            limit = NO_LIMIT if is_audit else _time_limit(study, spent)
            return self._drive(prepared, fleet, lease, limit, errand)

    def _drive(
        self,
        prepared: Prepared,
        fleet: Fleet,
        lease: Lease | None,
        limit: TimeLimit,
        errand: Errand = NOTHING_MORE,
    ) -> Closing:
        """Do everything from the first event of this driver to its last, which comes at the time limit at
        latest.

        A private Ray is started only here, after every check has passed, so that a mistake is reported at
        once.
        """
        study, home, folder = prepared.study, prepared.home, prepared.home.folder
        followed = Followed(home, study, prepared.space, prepared.pickled_code.model)
        followers = self.guests.followers(followed, lease)  # their faults are told before anything begins
        switch = StopSwitch(limit.deadline, lease)
        if switch.lost:
            raise UserError(f"{lease}: another driver has taken this search over")
        build, info = prepared.code.model, prepared.data.info
        for line in what_is_compiled(prepared.space, info, build, prepared.bench):
            self.bench.say(line)
        with Journal(folder) as journal, logging_to(folder / LOG_FILE):
            ledger = make_ledger(prepared, journal)
            if limit.gpu_hours is not None:
                end_by_gpu_hours(switch, ledger, limit.gpu_hours)
            installed, trial = versions(), prepared.per_trial
            start = DriverStart(
                seconds=waited_seconds(), slots=prepared.concurrent, gpus=trial.gpus * trial.workers
            )
            ledger.begin(str(study.name), installed, git_commit(Path.cwd()), prepared.weights, start)
            ledger.train_on(errand.audited)
            if errand.extended_to is not None:
                ledger.extend(errand.extended_to)
            asked = study.with_trials(ledger.budget)
            final = final_of(prepared.final.finalists, asked, prepared.pruning)
            logger.info("%s on %s, %s", study.name, fleet.hardware, installed)
            view = self.guests.view(asked, prepared.pruning, final, prepared.concurrent, folder)
            with followers.at_work(switch), switch.listening():
                with view:
                    self._train(prepared, fleet, ledger, switch, view, followers)
                if switch.lost:  # this driver may write nothing of the search any more
                    self.bench.say(f"{lease}: another driver has taken this search over, and goes on with it")
                    return "interrupted"
                state = self._close(prepared, ledger, switch, followers)
                self.guests.conclusion(folder, state, switch.fault, prepared.data, prepared.code)
        followers.say_what_is_lacking()
        if switch.fault is not None:
            return "broken off"
        is_ended = switch.interrupted and state == "interrupted"
        return ENDED_BY.get(switch.signals[0], state) if is_ended else state

    def _train(
        self,
        prepared: Prepared,
        fleet: Fleet,
        ledger: Ledger,
        switch: StopSwitch,
        view: Display,
        followers: Followers,
    ) -> None:
        """Train all trials, or as many as can be before the switch says stop; a fault of Ray's switches
        it."""
        if fleet.machines is None:
            slots: Slots = FixedSlots(prepared.concurrent, fleet.hardware.fits(prepared.per_trial))
        else:
            slots = ClusterSlots(prepared.per_trial, prepared.study.concurrent, fleet.machines.hardware)
        again = StoredSearch(prepared.home.folder).how_to_go_on
        ended = f"Ray has died on this machine, and ended the search; {again}"
        try:
            # listen again, once Ray has started: its C++ part sets a handler of SIGTERM, which aborts this
            # process
            with (
                local_ray(fleet.hardware, switch, ended) as died,
                switch.listening(),
                switch.stopped_by_disk(),
            ):
                if not switch.stops:
                    with _first_epoch_awaited(view) as progress:
                        hooks = Hooks(on_progress=progress, is_stored=followers.has_stored, died=died)
                        run_trials(prepared, ledger, switch, Pool(slots, fleet.machines), hooks)
        except RayNotStarted as error:
            switch.break_off(str(error))

    def _close(
        self, prepared: Prepared, ledger: Ledger, switch: StopSwitch, followers: Followers
    ) -> EndState:
        """Write what a search leaves, and its last event, as far as the disk allows; return its state."""
        state, reason = how_it_ended(ledger, switch, prepared)
        drop_all_checkpoints(ledger, prepared, switch)
        followers.catch_up(CATCH_UP_SECONDS)  # so that the recipe can name its MLflow run
        with switch.stopped_by_disk():
            self.guests.results(prepared.home.folder, state, reason)
        if switch.fault is not None:
            state, reason = "interrupted", switch.fault
        logger.info("%s: %s", state, reason or "every trial has ended")
        with switch.stopped_by_disk():
            ledger.close(state, reason)  # last: a finished search has its results
        return state


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
            by_time=study.budget.is_time,
        ),
        make_scheduler(prepared.space, prepared.pruning, study.objective.direction),
        trials=study.budget.trials,
        epochs=study.budget.epochs,
        metric=study.objective.metric,
        why=prepared.pruning.why,
        constraints=study.objective.constraints,
        first=prepared.first,
        finalists=prepared.final.finalists,
        goal=goals_of(study, prepared.data.info.validation_images),
    )


def end_by_gpu_hours(switch: StopSwitch, ledger: Ledger, most: float) -> None:
    """Have the switch end a search once its trials have held so many GPU-hours, by all its drivers."""
    switch.gpus_spent = lambda: ledger.gpu_hours(time.time()) >= most


def how_it_ended(ledger: Ledger, switch: StopSwitch, prepared: Prepared) -> tuple[EndState, str | None]:
    """Return how the search ended, and why, once no trial runs any more."""
    if switch.interrupted or switch.fault is not None:
        return "interrupted", switch.fault or "stopped by a signal"
    reason = ledger.reached
    if switch.out_of_time and not ledger.is_complete:
        spent = what_is_spent(switch, prepared.study)
        with switch.stopped_by_disk():
            for trial in ledger.open_trials:  # Ray drops results when it ends; the checkpoints have them
                if trial not in ledger.paused_trials:
                    ledger.recover(trial, stored_history(prepared, trial, ATTEMPTS) or ())
            reason = why_out_of_time(ledger, spent)
            ledger.cut_short(spent)
        if not ledger.has_finished_trial:
            return "failed", f"{spent} before a trial has finished"
    if not ledger.has_finished_trial:
        return "failed", StoredSearch(prepared.home.folder).progress.why_none_finished
    return "finished", reason


def what_is_spent(switch: StopSwitch, study: Study) -> str:
    """Return which part of the budget of time is spent, in words."""
    if switch.hours_spent:
        return HOURS_SPENT
    gpu_hours = study.budget.gpu_hours
    return GPU_HOURS_SPENT if gpu_hours == study.budget.most_gpu_hours else PRICE_SPENT


def why_out_of_time(ledger: Ledger, spent: str = HOURS_SPENT) -> str:
    """Return in words what a search lacks whose time has ended."""
    lacks = " before the best trials were trained again as planned" if ledger.lacks_final else ""
    reached = f"{ledger.reached}; " if ledger.reached is not None else ""
    return f"{reached}{spent}{lacks}"


@contextlib.contextmanager
def _first_epoch_awaited(view: Display) -> Iterator[Callable[[], None]]:
    """Give the block what updates the view, and show that a first epoch is waited for until one is there."""
    with contextlib.ExitStack() as waiting:
        waiting.enter_context(stage("starting a process for the first trial, and training its first epoch"))

        def update() -> None:
            view.update()
            if view.has_trained:
                waiting.close()

        yield update


def _time_limit(study: Study, spent: float) -> TimeLimit:
    """Return what the study's budget of time leaves, of which earlier drivers have spent some seconds."""
    hours = study.budget.hours
    left = None if hours is None else max(0.0, hours * 3600.0 - spent)
    return TimeLimit(None if left is None else time.monotonic() + left, study.budget.most_gpu_hours)
