"""Forecasts whether a trial passes the rungs, from the trials that were stopped there.

What a trial would gain at its end is worth nothing if it is stopped before. Near the best trials this is the
rule rather than the exception: many are alike, and most of them miss a rung by little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from search.deciding.gaussian_process import GaussianProcess
from search.deciding.observations import Observations

ENOUGH = 6  # a level needs so many scores before they say what passes


class Hurdle(NamedTuple):
    """A level at which trials were stopped."""

    time: float  # the level's, as the process counts it
    score: float  # the stretched score from which on trials passed


def hurdles(observations: Observations) -> list[Hurdle]:
    """Return the levels at which trials were stopped.

    Where 60 % of the trials were stopped, the hurdle is the 60 % quantile of the scores at that level."""
    observed, found = observations.observed, observations.seen()
    ends = np.array(
        [math.inf if observations.trains(each.trial) else (each.end or (0, 0.0))[0] for each in observed]
    )
    levels = []
    for level in found.levels:
        at = found.epochs == level
        stopped = float(np.mean(ends[found.places[at]] <= level))
        if at.sum() >= ENOUGH and 0 < stopped < 1:
            score = float(np.quantile(found.stretched[at], stopped))
            levels.append(Hurdle(float(found.times_of(level)), score))
    return levels


def log_chances(
    process: GaussianProcess, features: NDArray[np.float64], passed: Sequence[Hurdle]
) -> NDArray[np.float64] | float:
    """Return the logarithm of each row's probability to pass the hurdle that is the hardest for it.

    It counts as the probability of being feasible does in Bayesian optimization with constraints (Gelbart et
    al., arXiv 1403.5607, section 3). Hurdles are not taken for independent: a trial that passes the hardest
    one most likely passes the others."""
    chances = []
    for hurdle in passed:
        means, deviations = process.predict(features, hurdle.time)
        chances.append(log_ndtr((means - hurdle.score) / np.sqrt(deviations**2 + process.noise)))
    return np.min(chances, axis=0) if chances else 0.0
