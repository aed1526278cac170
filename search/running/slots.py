"""How many trials a search may have at once, as machines join and leave a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from search.facts.hardware import Hardware, PerTrial

# how many trials there may be at once, of how many processes are parked on GPUs that are left out; 0 if
# these are in every place where a trial could train
Slots = Callable[[int], int]
LOOK_SECONDS = 2.0  # Ray Tune asks ten times a second; machines are counted at most this often
WAITING = 1  # on a cluster, so many trials wait for a machine: without a demand, an autoscaler starts none


@dataclass(frozen=True)
class FixedSlots:
    """Places for `fits` trials on machines that neither join nor leave, of which `concurrent` train."""

    concurrent: int
    fits: int

    def __call__(self, parked: int = 0) -> int:
        """Return how many trials there may be while parked processes take so many of the places."""
        return max(0, min(self.concurrent, self.fits - parked))


@dataclass
class ClusterSlots:
    """Places for the trials that fit on a cluster's machines now, and one more that waits for the next
    machine.

    `asked` is the most that the study allows, if it says so; `look` returns the machines that are alive.
    """

    trial: PerTrial
    asked: int | None
    look: Callable[[], Hardware]
    clock: Callable[[], float] = time.monotonic
    _seen: int = field(default=0, init=False)
    _looks_from: float = field(default=float("-inf"), init=False)

    def __call__(self, parked: int = 0) -> int:
        """Return how many trials there may be now: at least 1, unless parked processes fill all machines."""
        if self.clock() >= self._looks_from:
            self._looks_from = self.clock() + LOOK_SECONDS
            self._seen = self.look().fits(self.trial)
        if 0 < self._seen <= parked:
            return 0
        most = max(0, self._seen - parked) + WAITING
        return most if self.asked is None else min(most, self.asked)
