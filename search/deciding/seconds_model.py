"""Forecasts how long an epoch of a trial takes, so that a search with a budget in hours counts what it gains
for each second of training (Snoek et al., arXiv 1206.2944, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search.deciding.cube import Cube
from search.deciding.gaussian_process import GaussianProcess, ScoredRows, usual
from search.deciding.observations import Observation

MOST_TRIALS = 200  # it learns from so many of the last trials at most
LEAST_SPREAD = 0.01  # where the logarithms of seconds vary by less, all epochs take the same time


class SecondsModel:
    """A Gaussian process of the logarithm of an epoch's seconds, with the usual parameters."""

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
