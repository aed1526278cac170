"""Runs the search: a Ledger behind Ray Tune's searcher, scheduler, callback and stopper.

Ray places trials and moves results. Every decision is the Ledger's, and the Ledger's truth is the journal. So
Ray's own experiment state is temporary: it is never restored from, and it is deleted at the end.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import cloudpickle
from ray import tune
from ray.exceptions import RayTaskError
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from search.deciding.ledger import Decision, Ledger, Proposal
from search.facts.hardware import PerTrial
from search.record.lease import Lease
from search.running.prepare import Prepared
from trainable.checkpoints.checkpoint_store import CheckpointStore
from trainable.errors import StateError
from trainable.files.store import StoreError
from trainable.training.metrics import EpochResult
from trainable.tune.seat import Seat, Shared
from trainable.tune.trial import TrialTrainable
from trainable.tune.watchdog import pop_reason
from trainable.tune.worker import TrialAssignment

SCRATCH = ".ray"
STOPPING = b"\nstopping; this takes some seconds; press Ctrl-C again to stop immediately\n"
LONGEST_REASON = 500
"""The most characters of a reason in tables and tags."""

logger = logging.getLogger(__name__)


@dataclass
class StopSwitch:
    """Says why the search should end early: a signal, the budget of hours, or another driver."""

    deadline: float | None = None
    """After this time.monotonic() no more training happens."""
    lease: Lease | None = None
    """The lease of a search that is in a store."""
    signals: list[int] = field(default_factory=list)

    @property
    def interrupted(self) -> bool:
        return bool(self.signals)

    @property
    def lost(self) -> bool:
        """Whether another driver goes on with the search, and owns its journal and checkpoints now."""
        return self.lease is not None and self.lease.lost

    @property
    def sure(self) -> bool:
        """Whether the search is this driver's for certain, so that it may delete files and send to others."""
        return self.lease is None or self.lease.sure

    @property
    def out_of_time(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Makes Ctrl-C and SIGTERM end the search cleanly, once; a second signal interrupts at once."""
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def on_signal(number: int, frame: FrameType | None) -> None:
            if self.signals:
                raise KeyboardInterrupt
            self.signals.append(number)
            os.write(2, STOPPING)  # not print: a signal may come in the middle of one

        for number in before:
            signal.signal(number, on_signal)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def run_trials(
    prepared: Prepared,
    ledger: Ledger,
    switch: StopSwitch,
    on_progress: Callable[[], None],
    trainable: type[TrialTrainable] = TrialTrainable,
    is_stored: Callable[[int], bool] | None = None,
) -> None:
    """Train every trial that the ledger proposes, on the Ray that is running.

    A trial starts when `is_stored` says that its record is where it must be. Returns when all have
    ended, or soon after the switch says stop; the journal then says what is left.
    """
    tuner = tune.Tuner(
        tune.with_resources(
            tune.with_parameters(trainable, seat=seat_of(prepared)), placement(prepared.per_trial)
        ),
        tune_config=tune.TuneConfig(
            search_alg=LedgerSearcher(ledger, prepared, is_stored),
            scheduler=LedgerScheduler(ledger),
            num_samples=-1,
            max_concurrent_trials=prepared.concurrent,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=f"{int(time.time())}",
            storage_path=str(prepared.home.folder / SCRATCH),
            failure_config=tune.FailureConfig(max_failures=prepared.study.limits.retries),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            callbacks=[LedgerCallback(ledger, prepared, switch, on_progress)],
            stop=SwitchStopper(switch),
            verbose=0,
        ),
    )
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    try:
        tuner.fit()
    finally:
        shutil.rmtree(prepared.home.folder / SCRATCH, ignore_errors=True)


def seat_of(prepared: Prepared) -> Seat:
    """Returns what every trial of the search works with."""
    trial = prepared.per_trial
    return Seat(
        data=Shared.put(prepared.data),
        device="cuda" if trial.gpus else "cpu",
        threads=trial.cpus,
        step_seconds=prepared.study.limits.step_seconds,
        gpu_share=trial.gpus or 1.0,
        workers=trial.workers,
        download=prepared.download,
    )


def placement(trial: PerTrial) -> tune.PlacementGroupFactory:
    """Returns what a trial reserves: a bundle for each rank, on one machine if one holds them all.

    With several workers there is an empty bundle too, for their coordinator.
    """
    bundle = {"CPU": trial.cpus, "GPU": trial.gpus}
    if trial.workers == 1:
        return tune.PlacementGroupFactory([bundle])
    return tune.PlacementGroupFactory(
        [{}, *[bundle] * trial.workers], strategy="STRICT_PACK" if trial.together else "PACK"
    )


class Scratch:
    """Has an empty state: Ray pickles its parts for `Tuner.restore`, which is never used here."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class LedgerSearcher(Scratch, Searcher):  # type: ignore[misc]  # ray ships no types
    """Tells Ray what to train next: the ledger's proposals."""

    def __init__(
        self, ledger: Ledger, prepared: Prepared, is_stored: Callable[[int], bool] | None = None
    ) -> None:
        super().__init__()
        self._ledger = ledger
        self._prepared = prepared
        self._is_stored = is_stored
        self._next: Proposal | None = None

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Returns a trial's configuration, FINISHED, or None; after None, Ray asks again soon.

        Ray asks some ten times a second.
        """
        proposal = self._next = self._next or self._ledger.propose()
        if proposal is None:
            return str(Searcher.FINISHED)
        if self._is_stored is not None and not self._is_stored(proposal.trial):
            return None
        self._next = None
        address = self._prepared.home.checkpoints(proposal.trial)
        assignment = TrialAssignment(proposal.recipe, address, str(self._ledger.search_id))
        return {"trial": proposal.trial, **assignment.config()}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Does nothing: the scheduler and the callback have called the ledger already."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Does nothing: the journal is the state."""

    def save(self, checkpoint_path: str) -> None:
        """Does nothing: the journal is the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Does nothing: the journal is the state."""


class LedgerScheduler(Scratch, FIFOScheduler):  # type: ignore[misc]
    """Decides whether a trial goes on: each of its epochs is entered in the ledger, which decides.

    A trial never says that it is done; so every result passes here, also its last.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        decision = Decision.CONTINUE
        for tree in result["epochs"]:
            decision = self._ledger.epoch(trial.config["trial"], EpochResult.from_tree(tree))
        return str(TrialScheduler.STOP if decision is Decision.STOP else TrialScheduler.CONTINUE)


class LedgerCallback(Scratch, tune.Callback):  # type: ignore[misc]
    """Enters in the ledger what happens to a trial apart from its results, and refreshes the display."""

    def __init__(
        self, ledger: Ledger, prepared: Prepared, switch: StopSwitch, on_progress: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._prepared = prepared
        self._switch = switch
        self._on_progress = on_progress

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        number = trial.config["trial"]
        try:
            done = checkpoints_of(self._prepared, number).epochs()
        except StoreError as error:
            logger.warning("trial %d: %s", number, error)
            done = self._ledger.epochs_done(number)
        self._ledger.start(number, done)

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._ledger.retry(trial.config["trial"], self._reason(trial))

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._ledger.fail(trial.config["trial"], self._reason(trial))

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Remove the checkpoints of a stopped trial, which nobody needs; a finished one's model stays."""
        if self._switch.sure:
            drop_checkpoints(self._ledger, self._prepared, trial.config["trial"])

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        self._on_progress()

    def _reason(self, trial: Trial) -> str:
        """Returns why an attempt failed, in one line; the whole error goes to the search's log."""
        number = trial.config["trial"]
        reason, whole = failure(trial)
        reason = pop_reason(TrialAssignment.from_config(trial.config).checkpoint_store.folder) or reason
        logger.warning("trial %d: %s\n%s", number, reason, whole)
        return reason


class SwitchStopper(Scratch, tune.Stopper):  # type: ignore[misc]
    """Ends the whole search when the switch says so."""

    def __init__(self, switch: StopSwitch) -> None:
        self._switch = switch

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._switch.interrupted or self._switch.out_of_time or self._switch.lost


def checkpoints_of(prepared: Prepared, trial: int, attempts: int = 1) -> CheckpointStore:
    """Returns a trial's checkpoints, for the driver; Ray's loop does not wait for a store that is down."""
    return CheckpointStore.at(prepared.home.checkpoints(trial), attempts=attempts)


def stored_history(prepared: Prepared, trial: int, attempts: int = 1) -> tuple[EpochResult, ...] | None:
    """Returns the results that a trial's newest checkpoint covers; None where they cannot be read."""
    try:
        return checkpoints_of(prepared, trial, attempts).history()
    except (StoreError, StateError, ValueError) as error:  # ValueError: damaged JSON
        logger.warning("trial %d: %s", trial, error)
        return None


def drop_checkpoints(ledger: Ledger, prepared: Prepared, trial: int) -> bool:
    """Remove the checkpoints of a trial that was stopped or diverged: nothing will go on from them.

    Returns false where a store is down; the checkpoints then use space until the next try.
    """
    if ledger.ended(trial) in ("stopped", "diverged"):
        try:
            checkpoints_of(prepared, trial).remove()
        except StoreError as error:
            logger.warning("trial %d: %s", trial, error)
            return False
    return True


def drop_all_checkpoints(ledger: Ledger, prepared: Prepared, switch: StopSwitch) -> None:
    """Call `drop_checkpoints` for all trials that have some, also for those that an earlier driver left."""
    try:
        trials = prepared.home.trials_with_checkpoints()
    except StoreError as error:
        logger.warning("%s", error)
        return
    for trial in range(ledger.trials):
        if trial in trials and not (switch.sure and drop_checkpoints(ledger, prepared, trial)):
            return


def failure(trial: Trial) -> tuple[str, str]:
    """Returns a crashed trial's error, in one line and in full: the exception, or how its process died."""
    path = trial.pickled_error_file
    if path is None or not Path(path).exists():
        return "the trial's process could not be started", ""
    error = cloudpickle.loads(Path(path).read_bytes())
    cause = error.cause if isinstance(error, RayTaskError) else error
    return f"{type(cause).__name__}: {' '.join(str(cause).split())}"[:LONGEST_REASON], str(error)
