"""Compares trials in pairs, each pair at the last epoch that both have reached.

Trials that were stopped early differ in length, and scores of different epochs cannot be compared. Nor does
the length alone say much: the first trials of a search, and the documented recipe, train to the end however
bad they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def wins(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return how many trials each one is above, less how many are above it, (n,).

    `scores` (n, levels) are those at a few epochs, which rise; higher is better, and all are NaN from the
    first level on that a trial has not reached. A trial that has reached none is below all others.
    """
    reached = (~np.isnan(scores)).sum(axis=1)
    found: NDArray[np.int64] = np.where(reached > 0, (reached == 0).sum(), -(reached > 0).sum())
    for level, there in enumerate(scores.T):
        has, goes_on = reached > level, reached > level + 1
        found[has] += _wins(there[has])
        found[goes_on] -= _wins(there[goes_on])  # these meet later
    return found


def _wins(scores: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return how many of the scores each one is above, less how many are above it: by sorting, since 10,000
    trials make 50 million pairs."""
    ranked = np.sort(scores)
    return np.searchsorted(ranked, scores, "left") + np.searchsorted(ranked, scores, "right") - len(ranked)
