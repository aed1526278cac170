"""Models what a search has seen by a Gaussian process, and forecasts how trials end.

Over all levels this is the model of multi-fidelity Bayesian optimization: early scores of many trials say
where final ones will be good (Swersky et al., arXiv 1406.3896; Klein et al., arXiv 1605.07079; for ASHA:
Klein et al., arXiv 2003.10865).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from search.deciding.cube import Cube, CubeRows
from search.deciding.gaussian_process import GaussianProcess, ScoredRows, fitted
from search.deciding.observations import Observations, ScoreTable, score_table

MOST_SCORES = 400  # the process is conditioned on so many scores at most, which bounds the cost of a draw
MOST_FITTED = 300  # its parameters are fitted to so many at most
# parameters are fitted when something was told so many times, and again after so many times as many
FIRST_FIT, REFIT = 8, 1.15


class Surrogate:
    """A forecast of final scores by those seen at all levels, or with `at_last` by those at the last one
    alone.

    Parameters are kept for a while, and depend only on what was known when they were due: so they are the
    same in a search that was rebuilt.
    """

    def __init__(self, cube: Cube, observations: Observations, *, at_last: bool = False) -> None:
        self._cube = cube
        self._observations = observations
        self._at_last = at_last
        self._fits: dict[int, NDArray[np.float64]] = {}

    def score_table(self) -> ScoreTable:
        """Return the scores that it learns from."""
        return self._of(self._observations.score_table())

    def trials(self) -> CubeRows:
        """Return the rows of the trials that the process is conditioned on, each once."""
        found = self.score_table()
        return found.rows(np.unique(found.places[bounded(found, MOST_SCORES)]))

    def process(self) -> GaussianProcess:
        """Return the process, conditioned also on its own means for trials that have not ended: so proposals
        for several workers keep apart (Ginsbourger et al. 2010, the Kriging believer).

        Parameters are fitted to normal scores: as good as to the stretched ones, which it is conditioned on,
        and one fit serves forecasts of both."""
        parameters, found = self._parameters(), self.score_table()
        known = scored(self._cube, found, found.stretched, MOST_SCORES)
        process = GaussianProcess(known, parameters)
        pending = self._cube.features(self._observations.open_rows())
        if not len(pending):
            return process
        means, _ = process.predict(pending, 1.0)
        believed = known.joined(pending, np.ones(len(pending)), means)
        return GaussianProcess(believed, parameters, certain=len(pending))

    def chance(self, row: CubeRows, scores: Mapping[int, float], best: float) -> float:
        """Return the probability that a trial which still trains ends with a score above `best`.

        `row` is its row, `scores` has its scores so far by epoch; higher is better.
        """
        found = self.score_table()
        features = self._cube.features(np.tile(row, (len(scores), 1)))
        its_own = found.normal_scores_of(np.array(list(scores.values())))
        times = found.times_of(np.array(list(scores), float))
        known = scored(self._cube, found, found.normal_scores, MOST_SCORES).joined(features, times, its_own)
        process = GaussianProcess(known, self._parameters())
        means, deviations = process.predict(features[:1], 1.0)
        above = means - found.normal_scores_of(np.array([best]))
        return float(ndtr(above / np.sqrt(deviations**2 + process.noise))[0])

    def _parameters(self) -> NDArray[np.float64]:
        """Return the parameters that are used now: those fitted to what was known when a refit was due."""
        times = FIRST_FIT
        while (later := math.ceil(times * REFIT)) <= self._observations.times_observed:
            times = later
        if times not in self._fits:
            known = self._of(score_table(self._observations.first_observed(times)))
            self._fits[times] = fitted(scored(self._cube, known, known.normal_scores, MOST_FITTED))
        return self._fits[times]

    def _of(self, found: ScoreTable) -> ScoreTable:
        return found.at_last_level if self._at_last else found


def scored(cube: Cube, found: ScoreTable, scores: NDArray[np.float64], most: int) -> ScoredRows:
    """Return at most `most` of the scores seen as a process learns from them; the last level's time is 1.

    `scores` are the normal scores, or the stretched ones."""
    chosen = bounded(found, most)
    return ScoredRows(
        cube.features(found.rows(found.places[chosen])),
        cube.groups,
        found.times_of(found.epochs[chosen]),
        scores[chosen],
    )


def bounded(found: ScoreTable, most: int) -> NDArray[np.int64]:
    """Return the places of at most `most` scores: half of them at the highest levels, the best first, the
    others spread evenly over the ranks of the rest."""
    if len(found.epochs) <= most:
        return np.arange(len(found.epochs))
    order = np.lexsort((-found.ranks, -found.epochs))
    first, rest = order[: most // 2], order[most // 2 :]
    spread = np.linspace(0, len(rest) - 1, most - len(first)).astype(int)
    return np.sort(np.concatenate([first, rest[spread]]))
