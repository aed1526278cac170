"""Regret over the budget, its means and intervals, and when one arm reaches another.

Regret is the best final score known on a task less the search's best so far, divided by the distance from the
median of even draws to the best known: 1 is no better than a draw, 0 the best. It counts 1 until a trial has
been trained to its end, and where the best so far is worse than the median draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# The epochs spent when each better final score of a search was reached, and that score
Best = Sequence[tuple[int, float]]

RESAMPLES = 2_000
NEVER = float("inf")


class Interval(NamedTuple):
    """A figure with the ends of its 95 % bootstrap interval; `NEVER` for what was not reached."""

    value: float
    low: float
    high: float


def regret(best: Best, scale: tuple[float, float], moments: Array) -> Array:
    """Return regret at each moment, in epochs spent; `scale` holds a task's best known and usual score."""
    known, usual = scale
    reached = np.array([usual, *(score for _, score in best)])
    steps = np.searchsorted([epochs for epochs, _ in best], moments, side="right")
    regrets: Array = np.minimum((known - reached[steps]) / (known - usual), 1.0)
    return regrets


def first_reach(curve: Array, level: float, shares: Array) -> float:
    """Return the first share of the budget at which a curve is at or below a level, or NEVER."""
    found = np.flatnonzero(curve <= level)
    return float(shares[found[0]]) if found.size else NEVER


def mean_curve(runs: Array) -> tuple[Array, Array, Array]:
    """Return the mean over seeds (rows), with the interval's two ends."""
    resampled = np.stack([runs[pick].mean(axis=0) for pick in _picks(len(runs))])
    low, high = np.percentile(resampled, [2.5, 97.5], axis=0)
    return runs.mean(axis=0), low, high


def reach(arm: Array, other: Array, at: float, shares: Array) -> Interval:
    """Return the share of the budget at which an arm's mean regret first is another arm's at a share `at`.

    Both hold one run a row, over `shares`, seeds in order; seeds that both have count. The interval resamples
    these, the same for both.
    """
    arm, other = _paired(arm, other)
    index = _index(at, shares)
    resampled = [
        first_reach(arm[pick].mean(axis=0), other[pick, index].mean(), shares) for pick in _picks(len(arm))
    ]
    # Without interpolation, which between a share and NEVER has no meaning.
    low, high = np.percentile(resampled, [2.5, 97.5], method="inverted_cdf")
    value = first_reach(arm.mean(axis=0), float(other[:, index].mean()), shares)
    return Interval(value, float(low), float(high))


def speed_up(arm: Array, other: Array, at: float, shares: Array) -> Interval:
    """Return how many times less budget than `at` an arm needs for the other arm's mean regret at `at`."""
    value, low, high = reach(arm, other, at, shares)
    return Interval(at / value, at / high, at / low)


def difference(arm: Array, other: Array, at: float, shares: Array, other_at: float | None = None) -> Interval:
    """Return an arm's mean regret at a share of the budget less another's, there or at `other_at`.

    Below 0 the arm is better. Seeds that both have count.
    """
    arm, other = _paired(arm, other)
    apart = arm[:, _index(at, shares)] - other[:, _index(at if other_at is None else other_at, shares)]
    low, high = np.percentile([apart[pick].mean() for pick in _picks(len(apart))], [2.5, 97.5])
    return Interval(float(apart.mean()), float(low), float(high))


def ratio(arm: Array, other: Array, at: float, shares: Array) -> Interval:
    """Return an arm's mean regret at a share of the budget over another's. Seeds that both have count."""
    arm, other = (runs[:, _index(at, shares)] for runs in _paired(arm, other))
    resampled = [arm[pick].mean() / other[pick].mean() for pick in _picks(len(arm))]
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Interval(float(arm.mean() / other.mean()), float(low), float(high))


def final(runs: Array, shares: Array) -> float:
    """Return the mean regret at the budget's end."""
    return float(runs[:, _index(1.0, shares)].mean())


def record(arm: Mapping[str, Array], other: Mapping[str, Array], shares: Array) -> dict[str, list[str]]:
    """Return the tasks on which an arm's final regret is better than, equal to or worse than another's.

    They are equal where the interval of the difference holds 0.
    """
    found: dict[str, list[str]] = {"better": [], "equal": [], "worse": []}
    for task, runs in arm.items():
        _, low, high = difference(runs, other[task], 1.0, shares)
        found["better" if high < 0 else "worse" if low > 0 else "equal"].append(task)
    return found


def over_tasks(runs: Mapping[str, Array]) -> Array:
    """Return the mean over tasks of each seed's regrets."""
    mean: Array = np.mean(list(runs.values()), axis=0)
    return mean


def _paired(arm: Array, other: Array) -> tuple[Array, Array]:
    common = min(len(arm), len(other))
    return arm[:common], other[:common]


def _index(at: float, shares: Array) -> int:
    """Return the index of the first share that is not below `at`; shares are rounded."""
    return int(np.searchsorted(shares, at - 1e-9))


def _picks(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
