"""Models what a search has seen by a Gaussian process over all its levels, and proposes what it expects most
of.

This is multi-fidelity Bayesian optimization: early scores of many trials say where final ones will be good
(Swersky et al., arXiv 1406.3896; Klein et al., arXiv 1605.07079; for ASHA: Klein et al., arXiv 2003.10865).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from search.deciding.cube import Cube, Rows
from search.deciding.gaussian_process import NOISE, GaussianProcess, Scored, fitted
from search.deciding.mutation import mutations
from search.deciding.observations import Observations, Seen, seen
from search.deciding.seconds_model import SecondsModel

MOST_SCORES = 400
"""The process is conditioned on so many scores at most, which bounds the cost of a draw."""
MOST_FITTED = 300
"""Its parameters are fitted to so many at most."""
FIRST_FIT, REFIT = 8, 1.15
"""Parameters are fitted to so many trials at first, and again once there are so many times as many."""
EVEN = 400
"""Even candidates for each draw."""
AROUND, NEAR, STEPS = 5, 8, (0.03, 0.12)
"""Candidates near the best: so many trials, so many mutations of each, at each of these steps."""
CLIMBED, CLIMBS = 4, (0.1, 0.03, 0.01)
"""The best so many candidates are mutated again, at each of these steps in turn."""
FAR = -50.0
"""So many deviations below the best, the improvement is that of its asymptote."""
ROOT_HALF_PI, ROOT_2_PI = (np.pi / 2) ** 0.5, (2 * np.pi) ** 0.5


@dataclass(frozen=True, eq=False)
class Candidates:
    """Holds rows with the logarithm of the improvement that each one promises."""

    rows: Rows
    gains: NDArray[np.float64]

    def best(self, count: int) -> NDArray[np.int64]:
        """Returns the places of those that promise most, the best first."""
        return np.argsort(-self.gains, kind="stable")[:count]

    def __add__(self, other: Candidates) -> Candidates:
        return Candidates(np.vstack([self.rows, other.rows]), np.concatenate([self.gains, other.gains]))


class Surrogate:
    """Forecasts final scores, as normal scores among all that were seen.

    Parameters are kept for a while, and depend only on what was known when they were due: so they are the
    same in a search that was rebuilt.
    """

    def __init__(self, cube: Cube, observations: Observations, *, by_time: bool = False) -> None:
        self._cube = cube
        self._observations = observations
        self._seconds = SecondsModel(cube) if by_time else None
        self._fits: dict[int, NDArray[np.float64]] = {}

    def candidates(self, rng: np.random.Generator) -> Candidates:
        """Returns candidates for a trial, even ones and mutations of the best, with what each promises."""
        found = self._observations.seen()
        process = self._process(found)
        of_trial = found.rows(np.unique(found.places[bounded(found, MOST_SCORES)]))
        means, _ = process.predict(self._cube.features(of_trial), 1.0)
        best = means.max()
        if self._seconds is not None:
            self._seconds.learn(self._observations.told)

        def judged(rows: Rows) -> Candidates:
            features = self._cube.features(rows)
            gains = log_expected_improvement(*process.predict(features, 1.0), best)
            return Candidates(
                rows, gains if self._seconds is None else gains - self._seconds.logarithms(features)
            )

        parents = of_trial[np.argsort(-means, kind="stable")[:AROUND]]
        near = [mutations(self._cube, parent, step, NEAR, rng) for step in STEPS for parent in parents]
        even = self._cube.exact(rng.random((EVEN, len(self._cube))))
        candidates = judged(np.vstack([even, *near]))
        for step in CLIMBS:
            tops = candidates.rows[candidates.best(CLIMBED)]
            more = [mutations(self._cube, top, step, 2 * NEAR, rng) for top in tops]
            candidates += judged(np.vstack(more))
        return candidates

    def chance(self, row: Rows, scores: Mapping[int, float], best: float) -> float:
        """Returns the probability that a trial which still trains ends with a score above `best`.

        `row` is its row, `scores` has its scores so far by epoch; higher is better.
        """
        found = self._observations.seen()
        features = self._cube.features(np.tile(row, (len(scores), 1)))
        its_own = found.normal_scores_of(np.array(list(scores.values())))
        times = _times(np.array(list(scores), float), found)
        parameters = self._parameters()
        known = scored(self._cube, found, MOST_SCORES).joined(features, times, its_own)
        means, deviations = GaussianProcess(known, parameters).predict(features[:1], 1.0)
        above = means - found.normal_scores_of(np.array([best]))
        return float(ndtr(above / np.hypot(deviations, np.exp(parameters[NOISE] / 2)))[0])

    def _process(self, found: Seen) -> GaussianProcess:
        """Returns the process, conditioned also on its own means for trials that have not ended: so no two
        workers get the same proposal (Ginsbourger et al. 2010, the Kriging believer)."""
        parameters = self._parameters()
        known = scored(self._cube, found, MOST_SCORES)
        process = GaussianProcess(known, parameters)
        pending = self._cube.features(self._observations.open_rows())
        if not len(pending):
            return process
        means, _ = process.predict(pending, 1.0)
        return GaussianProcess(known.joined(pending, np.ones(len(pending)), means), parameters)

    def _parameters(self) -> NDArray[np.float64]:
        """Returns the parameters that are used now: those fitted to what was known when a refit was due."""
        times = FIRST_FIT
        while (later := math.ceil(times * REFIT)) <= self._observations.times_told:
            times = later
        if times not in self._fits:
            known = self._observations.first_told(times)
            self._fits[times] = fitted(scored(self._cube, seen(known), MOST_FITTED))
        return self._fits[times]


def scored(cube: Cube, found: Seen, most: int) -> Scored:
    """Returns at most `most` of the scores as a process learns from them; the last level's time is 1."""
    kept = bounded(found, most)
    return Scored(
        cube.features(found.rows(found.places[kept])),
        cube.groups,
        _times(found.epochs[kept], found),
        found.normal_scores[kept],
    )


def _times(epochs: NDArray[np.float64], found: Seen) -> NDArray[np.float64]:
    """Returns epochs on the logarithmic scale that ends in 1 at the last one seen."""
    times: NDArray[np.float64] = np.log(epochs) / max(np.log(found.epochs.max()), 1e-9)
    return times


def bounded(found: Seen, most: int) -> NDArray[np.int64]:
    """Returns the places of at most `most` scores: half of them at the highest levels, the best first, the
    others spread evenly over the ranks of the rest."""
    if len(found.epochs) <= most:
        return np.arange(len(found.epochs))
    order = np.lexsort((-found.ranks, -found.epochs))
    first, rest = order[: most // 2], order[most // 2 :]
    spread = np.linspace(0, len(rest) - 1, most - len(first)).astype(int)
    return np.sort(np.concatenate([first, rest[spread]]))


def log_expected_improvement(
    means: NDArray[np.float64], deviations: NDArray[np.float64], best: float
) -> NDArray[np.float64]:
    """Returns the logarithm of expected improvement over `best` (Jones et al. 1998, equation 15), computed so
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
