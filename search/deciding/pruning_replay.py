"""Replays ASHA over known curves: says what it saves, and what it loses, counted in trials.

The loss is measured by a search's worth: the number of trials, all trained to the end, whose best one is as
good on average. A worth has no unit, so tasks can be compared, and it says what the saved epochs cost.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from search.deciding.scheduler import Asha

# scores are of shape [recipes, epochs], higher is better; from where a run diverged it has the worst one
ScoreCurves = NDArray[np.float64]
TrialOrder = NDArray[np.int64]
WORKERS = 4  # the searches train so many trials at a time


class Replayed(NamedTuple):
    """Means over orders: the share of all epochs that is trained, how much lower the best final score
    is, and the worth divided by the number of trials."""

    spent: float
    regret: float
    worth: float


def replayed(
    curves: ScoreCurves, orders: Sequence[TrialOrder], rungs: Sequence[int], factor: int
) -> Replayed:
    """Return what pruning does to searches whose trials are the recipes of each order."""
    trials, epochs = len(orders[0]), curves.shape[1]
    found = [one_search(curves, order, rungs, factor) for order in orders]
    lost = float(
        np.mean([curves[order, -1].max() - best for order, (best, _) in zip(orders, found, strict=True)])
    )
    spent = float(np.mean([spent for _, spent in found])) / (trials * epochs)
    finals = np.sort(curves[:, -1])
    return Replayed(spent, lost, worth(finals, expected_best(finals, trials) - lost, trials) / trials)


def one_search(
    curves: ScoreCurves, order: TrialOrder, rungs: Sequence[int], factor: int
) -> tuple[float, int]:
    """Return the best final score and the trained epochs of a search. It trains four trials at a time, all
    of them equally fast."""
    asha, stops = Asha(rungs, factor, "max"), (*rungs, curves.shape[1])
    waiting: Iterator[int] = iter(order.tolist())
    running = [(stops[0], arrival, trial, 0) for arrival, trial in zip(range(WORKERS), waiting, strict=False)]
    best, spent, arrivals = -np.inf, 0, len(running)
    while running:
        now, _, trial, stage = heapq.heappop(running)
        score, arrivals = curves[trial, stops[stage] - 1], arrivals + 1
        if stage + 1 < len(stops) and asha.report(trial, stops[stage], score):
            heapq.heappush(running, (now + stops[stage + 1] - stops[stage], arrivals, trial, stage + 1))
            continue
        spent += stops[stage]
        best = max(best, score) if stage + 1 == len(stops) else best
        if (new := next(waiting, None)) is not None:
            heapq.heappush(running, (now + stops[0], arrivals, new, 0))
    return float(best), spent


def worth(finals: ScoreCurves, best: float, trials: int) -> float:
    """Return how many trials, drawn from these final scores (rising), have this best one on average.

    It is at least 1.
    """
    low, high = 1.0, float(trials)
    if best >= expected_best(finals, trials):
        return high
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if expected_best(finals, middle) < best else (low, middle)
    return low


def expected_best(finals: ScoreCurves, trials: float) -> float:
    """Return the mean of the best of so many of these final scores (rising), drawn without repeats.

    The chance that none is above the i-th is C(i, trials) / C(N, trials), by the gamma function between whole
    numbers.
    """
    count = len(finals)
    ranks = np.arange(1, count + 1)
    below = np.maximum(ranks - trials, 0.0)
    logs = gammaln(ranks + 1) - gammaln(below + 1) - gammaln(count + 1) + gammaln(count - trials + 1)
    chances = np.where(ranks >= trials, np.exp(logs), 0.0)
    return float(finals @ np.diff(chances, prepend=0.0))
