"""Judges what a trial may gain, and looks for the one that may gain most: the acquisition function of
Bayesian optimization, and its maximum.

A trial gains what it is expected to end above the best one, times the probability that no rung stops it
before; where the budget is in hours, for each second of training. One that was tried before gains nothing.

Rungs count, since what a trial would gain at its end is worth nothing if it is stopped before. Near the best
trials this is the rule rather than the exception: many are alike, and most of them miss a rung by little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr

from search.deciding.cube import Cube, CubeRows, mutations
from search.deciding.gaussian_process import GaussianProcess, ScoredRows, usual
from search.deciding.observations import Observation, Observations
from search.deciding.surrogate import Surrogate

# the share of draws that look at the scores of the last level alone: what ends as the best may be behind at
# all rungs
BY_LAST = 0.5
ENOUGH = 10  # before so many trials have finished, every draw looks at all levels
EVEN = 400  # even candidates for each draw
# candidates near the best: so many trials, so many mutations of each, at each of these steps
AROUND, NEAR, STEPS = 5, 8, (0.03, 0.12)
# the best so many candidates are mutated again, at each of these steps in turn: a corner of the space is
# reached by many small changes
CLIMBED, CLIMBS = 4, (0.2, 0.1, 0.1, 0.05, 0.05, 0.03, 0.03, 0.01)
# so many of the first candidates, and of those of each step, are weighed by beliefs: those that may gain
# most. The others are left out
WEIGHED, WEIGHED_AGAIN = 50, 16
ENOUGH_AT_LEVEL = 6  # a level needs so many scores before they say what passes
# the forecast of seconds learns from so many of the last trials at most; where the logarithms of seconds vary
# by less than the second, all epochs take the same time
MOST_TRIALS, LEAST_SPREAD = 200, 0.01
FAR = -50.0  # so many deviations below the best, the improvement is that of its asymptote
Weigh = Callable[[CubeRows], NDArray[np.float64]]  # it returns the logarithm of a factor for each row
ROOT_HALF_PI, ROOT_2_PI = (np.pi / 2) ** 0.5, (2 * np.pi) ** 0.5


@dataclass(frozen=True, eq=False)
class Candidates:
    """Rows with the logarithm of what each one may gain."""

    rows: CubeRows
    gains: NDArray[np.float64]

    def best(self, count: int) -> NDArray[np.int64]:
        """Return the places of those that promise most, the best first."""
        return np.argsort(-self.gains, kind="stable")[:count]

    def weighed(self, weigh: Weigh, count: int) -> Candidates:
        """Return the `count` that promise most, their gains multiplied by the factors of `weigh`."""
        places = self.best(count)
        rows = self.rows[places]
        return Candidates(rows, self.gains[places] + weigh(rows))

    def __add__(self, other: Candidates) -> Candidates:
        return Candidates(np.vstack([self.rows, other.rows]), np.concatenate([self.gains, other.gains]))


class Acquisition:
    """What candidates may gain by two models: one of all levels, and one of the last level alone."""

    def __init__(self, cube: Cube, observations: Observations, *, by_time: bool = False) -> None:
        self._cube = cube
        self._observations = observations
        self._of_all = Surrogate(cube, observations)
        self._of_last = Surrogate(cube, observations, at_last=True)
        self._seconds = SecondsModel(cube) if by_time else None

    def candidates(self, rng: np.random.Generator, weigh: Weigh | None = None) -> Candidates:
        """Return candidates for a trial, even ones and mutations of the best, with what each may gain.

        `weigh` may speak for or against them: the mutations go on from those that then promise most."""
        finished = sum(each.outcome == "finished" for each in self._observations.observed)
        by_last = rng.random() < BY_LAST and finished >= ENOUGH
        over_all = self._of_all.process()
        process = self._of_last.process() if by_last else over_all
        trials = (self._of_last if by_last else self._of_all).trials()
        means, _ = process.predict(self._cube.features(trials), 1.0)
        best = means.max()
        rungs = hurdles(self._observations)
        if self._seconds is not None:
            self._seconds.learn(self._observations.observed)

        def with_gains(rows: CubeRows, weighed: int) -> Candidates:
            features = self._cube.features(rows)
            gains = log_expected_improvement(*process.predict(features, 1.0), best)
            gains += log_chances(over_all, features, rungs)
            if self._seconds is not None:
                gains -= self._seconds.logarithms(features)
            found = Candidates(rows, np.where(self._observations.are_new(rows), gains, -np.inf))
            return found if weigh is None else found.weighed(weigh, weighed)

        parents = trials[np.argsort(-means, kind="stable")[:AROUND]]
        near = [mutations(self._cube, parent, step, NEAR, rng) for step in STEPS for parent in parents]
        even = self._cube.exact(rng.random((EVEN, len(self._cube))))
        candidates = with_gains(np.vstack([even, *near]), WEIGHED)
        for step in CLIMBS:
            tops = candidates.rows[candidates.best(CLIMBED)]
            more = [mutations(self._cube, top, step, 2 * NEAR, rng) for top in tops]
            candidates += with_gains(np.vstack(more), WEIGHED_AGAIN)
        return candidates


def log_expected_improvement(
    means: NDArray[np.float64], deviations: NDArray[np.float64], best: float
) -> NDArray[np.float64]:
    """Return the logarithm of expected improvement over `best` (Jones et al. 1998, equation 15), computed so
    that it orders candidates also where the improvement itself is 0 in floating point (Ament et al., arXiv
    2310.20708)."""
    z = (means - best) / deviations
    low = np.minimum(z, -1.0)
    tail = np.where(
        low < FAR,
        -2.0 * np.log(-low),
        np.log1p(np.maximum(low, FAR) * ROOT_HALF_PI * erfcx(-np.maximum(low, FAR) / 2**0.5)),
    )
    near = np.log(
        np.exp(-0.5 * np.maximum(z, -1.0) ** 2) / ROOT_2_PI + np.maximum(z, -1.0) * ndtr(np.maximum(z, -1.0))
    )
    gains: NDArray[np.float64] = np.log(deviations) + np.where(
        z > -1.0, near, tail - 0.5 * low**2 - np.log(ROOT_2_PI)
    )
    return gains


class Hurdle(NamedTuple):
    """A level at which trials were stopped."""

    time: float  # the level's, as the process counts it
    score: float  # the stretched score from which on trials passed


def hurdles(observations: Observations) -> list[Hurdle]:
    """Return the levels at which trials were stopped.

    Where 60 % of the trials were stopped, the hurdle is the 60 % quantile of the scores at that level."""
    observed, found = observations.observed, observations.score_table()
    ends = np.array(
        [math.inf if observations.trains(each.trial) else (each.end or (0, 0.0))[0] for each in observed]
    )
    levels = []
    for level in found.levels:
        at = found.epochs == level
        stopped = float(np.mean(ends[found.places[at]] <= level))
        if at.sum() >= ENOUGH_AT_LEVEL and 0 < stopped < 1:
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


class SecondsModel:
    """A forecast of how long an epoch of a trial takes: a Gaussian process of the logarithm of its seconds,
    with the usual parameters.

    So a search counts what it gains for each second of training (Snoek et al., arXiv 1206.2944, section 3.2).
    """

    def __init__(self, cube: Cube) -> None:
        self._cube = cube
        self._process: GaussianProcess | None = None
        self._mean = self._spread = 0.0

    def learn(self, observed: Sequence[Observation]) -> None:
        """Replace what is known by these trials; those without an epoch say nothing."""
        timed = [(each.row, each.seconds) for each in observed if each.seconds][-MOST_TRIALS:]
        self._process = None
        if not timed:
            return
        logarithms = np.log([seconds for _, seconds in timed])
        self._mean, self._spread = float(logarithms.mean()), float(logarithms.std())
        if self._spread > LEAST_SPREAD:
            features = self._cube.features(np.array([row for row, _ in timed]))
            scores = (logarithms - self._mean) / self._spread
            seen = ScoredRows(features, self._cube.groups, np.ones(len(timed)), scores)
            self._process = GaussianProcess(seen, usual(len(self._cube)))

    def logarithms(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the forecast for each row of features, (rows,)."""
        if self._process is None:
            return np.full(len(features), self._mean)
        means, _ = self._process.predict(features, 1.0)
        forecasts: NDArray[np.float64] = self._mean + self._spread * means
        return forecasts
