"""Runs the search: a Ledger behind Ray Tune's searcher, scheduler, callback and stopper.

Ray places trials and moves results. Every decision is the Ledger's, and the Ledger's truth is the journal. So
Ray's own experiment state is temporary: it is never restored from, and it is deleted at the end.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, assert_never

from ray import tune
from ray.air.execution._internal import actor_manager
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.execution import tune_controller
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from search.deciding.ledger import Decision, Ledger, Proposal
from search.facts.hardware import PerTrial
from search.record.machines import LeftOut
from search.running.failures import Retries, failure
from search.running.machines import Machines
from search.running.parking import Fate, Parking
from search.running.prepare import Prepared
from search.running.private_ray import RayDied
from search.running.slots import Slots
from search.running.switch import StopSwitch
from search.running.trial_checkpoints import checkpoints_of, drop_checkpoints
from trainable.bench import silent
from trainable.files.store import StoreError
from trainable.recipe.network_cost import NetworkCost
from trainable.training.metrics import EpochResult
from trainable.tune.causes import cause_of
from trainable.tune.place import Place
from trainable.tune.stop_request import ask_to_stop, withdraw
from trainable.tune.trial import MemoryLeak, TrialTrainable
from trainable.tune.watchdog import pop_reason
from trainable.tune.worker import TrialAssignment
from trainable.tune.worker_setup import Shared, WorkerSetup

SCRATCH = ".ray"
NODE_LABEL = "ray.io/node-id"  # Ray gives each machine this label

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pool:
    """What trials train on: how many there may be at once, now, and the machines of a cluster."""

    slots: Slots
    machines: Machines | None = None


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """What whoever has trials trained hears of them meanwhile, and says to that."""

    on_progress: Callable[[], None] = lambda: None
    # whether a trial may start: its record is where it must be
    is_stored: Callable[[int], bool] | None = None
    died: Callable[[], str | None] = lambda: None  # says in words that Ray has died


def run_trials(
    prepared: Prepared,
    ledger: Ledger,
    switch: StopSwitch,
    pool: Pool,
    hooks: Hooks,
    trainable: type[TrialTrainable] = TrialTrainable,
) -> None:
    """Train every trial that the ledger proposes, on the Ray that is running.

    The bench of what is prepared is told which GPUs and machines are left out. Return when all have ended, or
    soon after the switch says stop; the journal then says what is left. Raises RayDied as soon as
    `hooks.died` says in words that Ray has.
    """
    machines, say = pool.machines, prepared.bench.say

    def leave_out(each: LeftOut) -> None:
        logger.error("%s", each)
        say(str(each))
        with switch.stopped_by_disk():
            if switch.fault is None:
                ledger.leave_out(each)

    parking = Parking(leave_out, say, machines, prepared.per_trial.workers)
    parking.tell()
    searcher = LedgerSearcher(ledger, prepared, switch, pool.slots, parking, hooks.is_stored)
    callback = LedgerCallback(ledger, prepared, switch, hooks.on_progress, searcher, parking)
    tuner = tune.Tuner(
        tune.with_resources(
            tune.with_parameters(trainable, setup=worker_setup(prepared)),
            placement(prepared.per_trial, () if machines is None else machines.excluded),
        ),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=LedgerScheduler(ledger, switch, parking),
            num_samples=-1,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=f"{int(time.time())}",
            storage_path=str(prepared.home.folder / SCRATCH),
            failure_config=tune.FailureConfig(max_failures=0),  # a failed trial is proposed again instead
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            callbacks=[callback],
            stop=SwitchStopper(switch, hooks.died, searcher, str(ledger.search_id)),
            verbose=0,
        ),
    )
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    withdraw(str(ledger.search_id))
    _count_killed_as_dead()
    try:
        tuner.fit()
    finally:
        shutil.rmtree(prepared.home.folder / SCRATCH, ignore_errors=True)


def _count_killed_as_dead() -> None:
    """Let Tune take a process that Ray killed, when the machine's memory ran out, for one that died.

    Ray 2.60 reports it by an error that is no RayActorError, and Tune ends the whole search on others. Both
    modules ask `isinstance(error, RayActorError)` and look the name up at each failure.
    """
    for module in (actor_manager, tune_controller):
        module.RayActorError = (RayActorError, OutOfMemoryError)


def worker_setup(prepared: Prepared) -> WorkerSetup:
    """Return what every trial of the search works with."""
    trial = prepared.per_trial
    return WorkerSetup(
        data=Shared.put(prepared.data),
        bench=replace(trial.bench(prepared.bench), gpu_share=trial.gpus or 1.0, say=silent),
        step_seconds=prepared.study.limits.step_seconds,
        workers=trial.workers,
        code=prepared.pickled_code,
        splits={seed: Shared.put(data) for seed, data in prepared.splits.items()},
    )


def placement(trial: PerTrial, without: Collection[str] = ()) -> tune.PlacementGroupFactory:
    """Return what a trial reserves: a bundle for each rank, on one machine if one holds them all.

    It reserves nothing on the machines `without`, by Ray's ids. With several workers there is an empty bundle
    too, for their coordinator.
    """
    bundle = {"CPU": trial.cpus, "GPU": trial.gpus}
    bundles = [bundle] if trial.workers == 1 else [{}, *[bundle] * trial.workers]
    strategy = "STRICT_PACK" if trial.workers > 1 and trial.together else "PACK"
    if not without:  # Ray's first autoscaler knows no labels; Tune leaves the empty bundle out
        return tune.PlacementGroupFactory(bundles, strategy)
    selector = {NODE_LABEL: f"!in({','.join(without)})"}
    return tune.PlacementGroupFactory(bundles, strategy, bundle_label_selector=[selector] * trial.workers)


class Scratch:
    """A part of Ray's with an empty state: Ray pickles it for `Tuner.restore`, which is never used here."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class LedgerSearcher(Scratch, Searcher):  # type: ignore[misc]  # ray ships no types
    """Ray's searcher, which proposes what the ledger proposes."""

    def __init__(
        self,
        ledger: Ledger,
        prepared: Prepared,
        switch: StopSwitch,
        slots: Slots,
        parking: Parking,
        is_stored: Callable[[int], bool] | None = None,
    ) -> None:
        super().__init__()
        self.is_over = False  # whether nothing is left to train, and only parked processes may still be there
        self._slots = slots
        self._parking = parking
        self._live: set[str] = set()  # Ray's names of the trials that have not ended
        self._ledger = ledger
        self._prepared = prepared
        self._switch = switch
        self._is_stored = is_stored
        self._next: Proposal | None = None
        self._again: list[int] = []

    def propose_again(self, trial: int) -> None:
        """Propose a trial that failed, before any new one; it goes on from its checkpoint."""
        self._again.append(trial)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return a trial's configuration, FINISHED, or None; after None, Ray asks again soon.

        Ray asks some ten times a second.
        """
        parked = self._parking.count
        if len(self._live) - parked - self._parking.leaving >= self._slots(self._parking.taken):
            return None
        if self._next is None:
            with self._switch.stopped_by_disk():
                self._next = self._proposal()
        if self._switch.fault is not None:
            return None
        if (proposal := self._next) is None:  # a trial that is live may still fail, and be proposed again
            self.is_over = len(self._live) == parked
            return str(Searcher.FINISHED) if self.is_over else None
        if self._is_stored is not None and not self._is_stored(proposal.trial):
            return None
        self._next = None
        self._live.add(trial_id)
        address = self._prepared.home.checkpoints(proposal.trial)
        measures = self._ledger.lacks_cost(proposal.trial)
        assignment = TrialAssignment(proposal.recipe, address, str(self._ledger.search_id), measures)
        return {"trial": proposal.trial, **assignment.config()}

    @property
    def has_no_room(self) -> bool:
        """Whether a parked process is in every place where a trial could train."""
        return self._parking.taken > 0 and self._slots(self._parking.taken) == 0

    def _proposal(self) -> Proposal | None:
        return self._ledger.propose_again(self._again.pop(0)) if self._again else self._ledger.propose()

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Make room for another trial; the ledger knows already, or learns it from the callback."""
        self._live.discard(trial_id)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Do nothing: the journal is the state."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the journal is the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: the journal is the state."""


class LedgerScheduler(Scratch, FIFOScheduler):  # type: ignore[misc]
    """Ray's scheduler, which enters a trial's cost and its epochs in the ledger, and does what that decides.

    A trial never says that it is done; so every result passes here, also its last.
    """

    def __init__(self, ledger: Ledger, switch: StopSwitch, parking: Parking) -> None:
        super().__init__()
        self._ledger = ledger
        self._switch = switch
        self._parking = parking

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        number, decision = trial.config["trial"], Decision.CONTINUE
        before = self._ledger.epochs_done(number)
        with self._switch.stopped_by_disk():
            for tree in result.get("costs", ()) if self._switch.fault is None else ():
                decision = self._ledger.cost(number, NetworkCost(**tree))
            for tree in result["epochs"] if self._switch.fault is None else ():
                decision = self._ledger.epoch(number, EpochResult.from_tree(tree))
        if self._ledger.epochs_done(number) > before:  # else they are those of a checkpoint
            self._parking.trained(trial)
        goes_on = decision is Decision.CONTINUE  # one that pauses is later another trial of Ray's
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)


class LedgerCallback(Scratch, tune.Callback):  # type: ignore[misc]
    """Ray's callback, which enters in the ledger what happens to a trial apart from its results, and
    refreshes the display."""

    def __init__(
        self,
        ledger: Ledger,
        prepared: Prepared,
        switch: StopSwitch,
        on_progress: Callable[[], None],
        searcher: LedgerSearcher,
        parking: Parking,
    ) -> None:
        self._ledger = ledger
        self._prepared = prepared
        self._switch = switch
        self._on_progress = on_progress
        self._searcher = searcher
        self._parking = parking
        limits = prepared.study.limits
        self._retries = Retries(limits.retries, limits.machine_retries)
        # the trials that were paused, and whose checkpoints are kept
        self._paused = set(ledger.paused_trials)

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._go_by(self._parking.arrives(trial), trial)

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        if "places" in result:
            ranks = tuple(Place(**tree) for tree in result["places"])
            self._go_by(self._parking.started(trial, ranks), trial)
        elif self._parking.waits(trial.trial_id):
            self._go_by(self._parking.heard(trial), trial)

    def _go_by(self, fate: Fate, trial: Trial) -> None:
        number = trial.config["trial"]
        match fate:
            case "trains":
                self._begin(number, trial)
            case "parked":
                self._searcher.propose_again(number)
            case "waits" | "starts":
                pass
            case _:
                assert_never(fate)

    def _begin(self, number: int, trial: Trial) -> None:
        """Enter that an attempt begins, and where."""
        try:
            done = checkpoints_of(self._prepared, number).epochs()
        except StoreError as error:
            logger.warning("trial %d: %s", number, error)
            done = self._ledger.epochs_done(number)
        self._enter(self._ledger.start, number, done)
        if places := self._parking.places(trial):
            self._enter(self._ledger.place, number, places)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Enter that an attempt failed, and whether another one follows. If no trial is to blame, the whole
        search stops. A process that ends while it is parked, or waits, was no attempt, nor was one that its
        machine took away before it came to run; that counts as a loss of its machine."""
        trial.run_metadata.pickled_error_filename = None  # Ray would unpickle it when the search ends
        if self._parking.has(trial.trial_id):
            self._parking.leave(trial.trial_id)
            return
        number = trial.config["trial"]
        if self._parking.waits(trial.trial_id):
            self._parking.leave(trial.trial_id)
            self._searcher.propose_again(number)
            return
        if self._parking.starts(trial.trial_id):
            self._begin(number, trial)
        reason = self._reason(trial)
        cause = cause_of(reason)
        if cause == "crash" and self._parking.is_the_machines(trial.trial_id):
            cause = "infrastructure"
        if cause == "crash" and not reason.startswith(MemoryLeak.__name__):  # that is the trial's before it
            self._parking.crashed(trial)
        was_attempt = self._parking.came(trial.trial_id) or cause in ("crash", "disk")
        self._parking.leave(trial.trial_id)
        if cause == "disk":
            self._switch.break_off(f"trial {number} cannot be saved: {reason.partition(': ')[2]}")
        elif self._retries.again(number, cause):
            if was_attempt:
                self._enter(self._ledger.retry, number, reason)
            self._searcher.propose_again(number)
        else:
            self._enter(self._ledger.fail, number, reason)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Remove the checkpoints of a stopped trial, which nobody needs; a finished one's model stays.

        A paused trial's stay too, and its process lets another one write there. An epoch of one trial may
        have ended others that were paused.
        """
        self._parking.leave(trial.trial_id)
        number = trial.config["trial"]
        if number in self._ledger.paused_trials:
            self._paused.add(number)
            trial.temporary_state.ray_actor.let_go.remote()
        ended = {each for each in (number, *self._paused) if self._ledger.ended(each) is not None}
        for each in sorted(ended) if self._switch.sure else ():
            drop_checkpoints(self._ledger, self._prepared, each)
        self._paused -= ended

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        self._on_progress()
        self._parking.tell()
        if self._searcher.has_no_room and not any(map(self._trains, trials)):
            self._switch.break_off(f"no place is left to train on: {self._parking}")

    def _trains(self, trial: Trial) -> bool:
        return bool(trial.status == Trial.RUNNING) and not self._parking.has(trial.trial_id)

    def _enter(self, enter: Callable[[int, Any], None], number: int, what: object) -> None:
        """Enter something in the ledger, unless the search is being broken off."""
        with self._switch.stopped_by_disk():
            if self._switch.fault is None:
                enter(number, what)

    def _reason(self, trial: Trial) -> str:
        """Return why an attempt failed, in one line; the whole error goes to the search's log."""
        number = trial.config["trial"]
        reason, whole = failure(trial)
        reason = pop_reason(TrialAssignment.from_config(trial.config).checkpoint_store.folder) or reason
        logger.warning("trial %d: %s\n%s", number, reason, whole)
        return reason


class SwitchStopper(Scratch, tune.Stopper):  # type: ignore[misc]
    """Ray's stopper, which ends the whole search, by its id, when the switch says so, or when only parked
    processes are left."""

    def __init__(
        self, switch: StopSwitch, died: Callable[[], str | None], searcher: LedgerSearcher, search: str
    ) -> None:
        self._switch = switch
        self._died = died
        self._searcher = searcher
        self._search = search

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        if (words := self._died()) is not None:
            raise RayDied(words)
        if self._switch.interrupted and not self._switch.lost:
            ask_to_stop(self._search)  # Tune listens to no trial any more when this has returned
        return self._switch.stops or self._searcher.is_over
