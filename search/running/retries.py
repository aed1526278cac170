"""Decides whether a trial that failed is tried again: crashes and lost machines have budgets of their own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import assert_never

from trainable.tune.causes import Cause


@dataclass
class Retries:
    """The failures of each trial since this driver began.

    `crashes` is how often a trial may fail by itself and be tried again, `losses` how often it may lose its
    processes or machine, or have the machine taken back.
    """

    crashes: int
    losses: int
    _counted: Counter[tuple[int, str]] = field(default_factory=Counter, init=False)

    def again(self, trial: int, cause: Cause) -> bool:
        """Count a failure, and return whether the trial is tried again."""
        match cause:
            case "crash" | "disk":  # a full disk interrupts the search; what else it does is the trial's
                return self._count(trial, "crash") <= self.crashes
            case "infrastructure" | "preempted":
                return self._count(trial, "loss") <= self.losses
            case _:
                assert_never(cause)

    def _count(self, trial: int, kind: str) -> int:
        self._counted[trial, kind] += 1
        return self._counted[trial, kind]
