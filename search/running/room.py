"""Says how many trials a search may have at once, as machines join and leave a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from search.facts.hardware import Hardware, PerTrial

LOOK_SECONDS = 2.0
"""Ray Tune asks ten times a second; machines are counted at most this often."""
WAITING = 1
"""On a cluster, so many trials wait for a machine: without a demand, an autoscaler starts none."""


@dataclass
class ClusterRoom:
    """Counts the trials that fit on a cluster's machines now, and one more that waits for the next machine.

    `asked` is the most that the study allows, if it says so; `look` returns the machines that are alive.
    """

    trial: PerTrial
    asked: int | None
    look: Callable[[], Hardware]
    clock: Callable[[], float] = time.monotonic
    _seen: int = field(default=0, init=False)
    _looks_from: float = field(default=float("-inf"), init=False)

    def __call__(self) -> int:
        """Returns how many trials there may be now, at least 1."""
        if self.clock() >= self._looks_from:
            self._looks_from = self.clock() + LOOK_SECONDS
            self._seen = self.look().fits(self.trial) + WAITING
        return self._seen if self.asked is None else min(self._seen, self.asked)
