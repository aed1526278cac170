"""Why a search should end early, and what has ended it."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

from search.record.lease import Lease
from trainable.processes import ENDING_SIGNALS, heard_signals, leave_closed_terminal
from trainable.tune.causes import in_words, refusal_in

STOPPING = b"\nstopping; this takes some seconds; press Ctrl-C again to stop immediately\n"

logger = logging.getLogger(__name__)


@dataclass
class StopSwitch:
    """Why the search should end early: a signal, the budget of time, another driver, or a fault."""

    deadline: float | None = None  # after this time.monotonic() no more training happens
    lease: Lease | None = None  # the lease of a search that is in a store
    gpus_spent: Callable[[], bool] = lambda: False  # the GPU-hours of the budget are
    signals: list[int] = field(default_factory=list)
    # what no trial is to blame for and keeps every trial from going on, such as a full disk, in words
    fault: str | None = None

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
        """Whether the hours, or the GPU-hours, of the budget are spent."""
        return self.hours_spent or self.gpus_spent()

    @property
    def hours_spent(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def stops(self) -> bool:
        """Whether no more training should happen."""
        return self.interrupted or self.out_of_time or self.lost or self.fault is not None

    def break_off(self, fault: str) -> None:
        """Note what keeps the search from going on; the first fault counts, others often follow from it."""
        if self.fault is None:
            self.fault = fault
            logger.error("%s", fault)

    @contextmanager
    def stopped_by_disk(self) -> Iterator[None]:
        """End the search, instead of raising, where the system refuses what the block reads or write.

        Ray would take an error in its callbacks for one of the trial.
        """
        try:
            yield
        except OSError as error:
            logger.info("this ends the search:", exc_info=error)
            if refusal_in(error) is not None:
                self.break_off(f"the search cannot be written to the disk: {in_words(error)}")
            else:  # a disk that is broken, or a connection to Ray
                self.break_off(f"{type(error).__name__}: {error}")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Make Ctrl-C, SIGTERM and a closed terminal end the search cleanly, once.

        A second Ctrl-C or SIGTERM interrupts at once. A terminal that closes says so more than once, by the
        kernel, by its shell, and by the SIGTERM of whatever ends the person's other processes then.
        """
        heard = (signal.SIGINT, *heard_signals(*ENDING_SIGNALS))
        before = {number: signal.getsignal(number) for number in heard}

        def on_signal(number: int, frame: FrameType | None) -> None:
            if number == signal.SIGHUP:
                leave_closed_terminal()
            elif self.signals and (number == signal.SIGINT or set(self.signals) != {signal.SIGHUP}):
                raise KeyboardInterrupt
            self.signals.append(number)
            with suppress(OSError):  # standard error may be closed, or a pipe that nobody reads
                os.write(2, STOPPING)  # not print: a signal may come in the middle of one

        for number in before:
            signal.signal(number, on_signal)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
