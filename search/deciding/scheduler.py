"""Implements ASHA's stopping rule without clock and without Ray; replaying the journal rebuilds it.

It is asynchronous successive halving (Li et al., arXiv 1810.05934) in the variant that stops and never
promotes: at each rung a trial goes on if it is among the best 1/factor of all values recorded there so far,
its own included. Decisions are final, so the order of results matters: the first trial at a rung always goes
on, and better trials that come later do not stop one that has passed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from trainable.recipe.metrics import Mode


def rungs(grace: int, factor: int, epochs: int) -> tuple[int, ...]:
    """Returns the epochs at which trials are compared: grace * factor^k below `epochs` (the last is no rung).

    They are multiplied in integers: through a logarithm 3**5 comes out as 242.99 and its rung would vanish.
    """
    if grace < 1 or factor < 2:
        raise ValueError(f"rungs need grace >= 1 and factor >= 2, got grace {grace} and factor {factor}")
    found = []
    rung = grace
    while rung < epochs:
        found.append(rung)
        rung *= factor
    return tuple(found)


def first_at_or_after(wanted: Sequence[int], allowed: Sequence[int]) -> tuple[int, ...]:
    """Returns the first `allowed` epoch at or after each wanted one, each once, where there is one.

    So no more trials are stopped than the wanted rungs would stop, however close the allowed ones lie.
    """
    found = (next((epoch for epoch in allowed if epoch >= each), None) for each in wanted)
    return tuple(dict.fromkeys(epoch for epoch in found if epoch is not None))


def rank(value: float, recorded: Collection[float], direction: Mode) -> int:
    """Returns 1 + how many recorded values are strictly better: ties share the better rank."""
    match direction:
        case "max":
            return 1 + sum(other > value for other in recorded)
        case "min":
            return 1 + sum(other < value for other in recorded)


def survivors(count: int, factor: int) -> int:
    """Returns how many of `count` trials at a rung go on: floor(count / factor), but at least one."""
    return max(1, count // factor)


class Asha:
    """Decides which trials are stopped, and where.

    `rungs` are epochs, rising (none: nothing is stopped); `direction` says which values are better. Only the
    rung just reached is recorded, so a trial that starts in the middle of its training cannot spoil an
    earlier rung.
    """

    def __init__(self, rungs: Sequence[int], reduction_factor: int, direction: Mode) -> None:
        if list(rungs) != sorted(set(rungs)) or (rungs and rungs[0] < 1):
            raise ValueError(f"rungs must rise from 1 or more, got {list(rungs)}")
        if reduction_factor < 2:
            raise ValueError(f"reduction_factor must be at least 2, got {reduction_factor}")
        self.recorded: dict[int, dict[int, float]] = {rung: {} for rung in rungs}
        """By rung, the value of each trial that reached it, in the order of arrival."""
        self.factor = reduction_factor
        self.direction = direction

    @property
    def rungs(self) -> tuple[int, ...]:
        """The epochs at which trials are compared, rising."""
        return tuple(self.recorded)

    def rung_at(self, epoch: int) -> int | None:
        """Returns the rung that this epoch reaches, if it reaches one."""
        return epoch if epoch in self.recorded else None

    def report(self, trial: int, epoch: int, value: float, *, exempt: bool = False) -> bool:
        """Record a trial's value and return whether it goes on.

        Between rungs every trial goes on. A value that is not finite stops its trial at any epoch and is not
        recorded, exempt or not. Otherwise an exempt trial is recorded and goes on. Raises ValueError for a
        second report at one rung.
        """
        if not math.isfinite(value):
            return False
        rung = self.rung_at(epoch)
        if rung is None:
            return True
        if trial in self.recorded[rung]:
            raise ValueError(f"trial {trial} has reported at rung {rung} before")
        self.recorded[rung][trial] = value
        position, _, going_on = self.rank_at(trial, rung)
        return exempt or position <= going_on

    def rank_at(self, trial: int, rung: int) -> tuple[int, int, int]:
        """Returns a recorded trial's rank at a rung, out of how many trials, and how many of those go on."""
        values = self.recorded[rung]
        return (
            rank(values[trial], values.values(), self.direction),
            len(values),
            survivors(len(values), self.factor),
        )


def expected_share(rungs: Sequence[int], factor: int, epochs: int) -> float:
    """Returns the share of `epochs` that a trial trains on average when one in `factor` survives each rung.

    It is a plan, not a promise: early trials meet few rivals and are stopped less often.
    """
    trained, surviving, before = 0.0, 1.0, 0
    for rung in (*rungs, epochs):
        trained += surviving * (rung - before)
        surviving, before = surviving / factor, rung
    return trained / epochs
