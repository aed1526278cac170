"""Reads the checkpoints of trials for the driver, and removes those that nobody needs any more."""

from __future__ import annotations

import logging

from search.deciding.ledger import Ledger
from search.running.prepare import Prepared
from search.running.switch import StopSwitch
from trainable.checkpoints.checkpoint_store import CheckpointStore
from trainable.errors import StateError
from trainable.files.store import StoreError
from trainable.training.metrics import EpochResult

logger = logging.getLogger(__name__)


def checkpoints_of(prepared: Prepared, trial: int, attempts: int = 1) -> CheckpointStore:
    """Return a trial's checkpoints, for the driver; Ray's loop does not wait for a store that is down."""
    return CheckpointStore.at(prepared.home.checkpoints(trial), attempts=attempts)


def stored_history(prepared: Prepared, trial: int, attempts: int = 1) -> tuple[EpochResult, ...] | None:
    """Return the results that a trial's newest checkpoint covers; None where they cannot be read."""
    try:
        return checkpoints_of(prepared, trial, attempts).history()
    except (StoreError, StateError, ValueError) as error:  # ValueError: damaged JSON
        logger.warning("trial %d: %s", trial, error)
        return None


def drop_checkpoints(ledger: Ledger, prepared: Prepared, trial: int) -> bool:
    """Remove the checkpoints of a trial that was stopped, diverged or is infeasible; nothing goes on there.

    Return false where a store is down or a disk refuses it; the checkpoints then use space until the next
    try.
    """
    if ledger.ended(trial) in ("stopped", "diverged", "infeasible"):
        try:
            checkpoints_of(prepared, trial).remove()
        except (StoreError, OSError) as error:
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
