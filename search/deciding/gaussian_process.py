"""Fits a Gaussian process to scores of trials at several epochs, with NumPy and SciPy alone.

The covariance of two scores is

    size * matern(x, x') * exp(-|t - t'| / change) + drift * exp(-|t - t'| / pace), and noise on the diagonal:

x is a trial (a row of features), t an epoch (on a logarithmic scale, in [0, 1]). The first term lets scores
of one epoch say less and less about those of others, the second moves all trials together. `matern` has the
smoothness 5/2 and a length scale for each dimension (Rasmussen and Williams 2006, Gaussian Processes for
Machine Learning, section 4.2). Parameters are the likeliest ones under weak log-normal priors (section
5.4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

Array = NDArray[np.float64]
Groups = NDArray[np.int64]

STEPS = 15
"""Of L-BFGS; more changed no draw for the better."""
JITTER = 1e-6
CHANGE, PACE, SIZE, DRIFT, NOISE = range(-5, 0)
"""Where the parameters stand that follow the length scales. All are logarithms."""
USUAL = {CHANGE: 1.0, PACE: 1.0, SIZE: 0.7, DRIFT: 0.3, NOISE: 0.05}
"""The medians of the priors, for scores with a variance of about 1."""
USUAL_LENGTH = 0.25
"""The median of a length scale is this times the root of the number of dimensions, which keeps distances
alike in spaces of any size (Hvarfner et al., arXiv 2402.02229, section 4)."""
SPREAD = 1.0
"""The standard deviation of each logarithm under its prior."""
REACH = 4.0
"""Parameters are searched within so many standard deviations."""


@dataclass(frozen=True, eq=False)
class Scored:
    """Holds n scores: features (n, columns), the dimension of each column (columns,), times (n,), scores
    (n,)."""

    features: Array
    groups: Groups
    times: Array
    scores: Array

    def joined(self, features: Array, times: Array, scores: Array) -> Scored:
        """Returns these scores and others."""
        return Scored(
            np.vstack([self.features, features]),
            self.groups,
            np.concatenate([self.times, times]),
            np.concatenate([self.scores, scores]),
        )

    @cached_property
    def gaps(self) -> Array:
        """The distances in time, (n, n)."""
        return np.abs(self.times[:, None] - self.times[None, :])


class GaussianProcess:
    """Predicts scores, conditioned on those seen; `parameters` are those of `fitted`."""

    def __init__(self, seen: Scored, parameters: Array) -> None:
        self._seen, self._parameters = seen, parameters
        covariance = self._between(seen.features, seen.times)
        covariance[np.diag_indices_from(covariance)] += np.exp(parameters[NOISE]) + JITTER
        self._factor = cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        self._weights = cho_solve((self._factor, True), seen.scores, check_finite=False)

    def predict(self, features: Array, time: float) -> tuple[Array, Array]:
        """Returns the mean and the standard deviation of the score of each row at a time, without noise."""
        across = self._between(features, np.full(len(features), time))
        explained = solve_triangular(self._factor, across.T, lower=True, check_finite=False)
        variance = np.exp(self._parameters[[SIZE, DRIFT]]).sum() - np.square(explained).sum(axis=0)
        return across @ self._weights, np.sqrt(np.maximum(variance, JITTER))

    def predict_together(self, features: Array, time: float) -> tuple[Array, Array]:
        """Returns the means (n,) of the scores of n rows at a time, and their covariances (n, n)."""
        times = np.full(len(features), time)
        across = self._between(features, times)
        explained = solve_triangular(self._factor, across.T, lower=True, check_finite=False)
        return across @ self._weights, self._covariance(features, times, features, times) - (
            explained.T @ explained
        )

    def _between(self, features: Array, times: Array) -> Array:
        """Returns the covariances of other scores (rows) with those seen (columns)."""
        return self._covariance(features, times, self._seen.features, self._seen.times)

    def _covariance(self, features: Array, times: Array, others: Array, their_times: Array) -> Array:
        parameters = self._parameters
        inverse = np.exp(-parameters[: -len(USUAL)])[self._seen.groups]
        distances = cdist(features * inverse, others * inverse)
        gaps = np.abs(times[:, None] - their_times[None, :])
        of_trials, of_times, _ = _terms(distances, gaps, parameters)
        covariance: Array = of_trials + of_times
        return covariance


def fitted(seen: Scored) -> Array:
    """Returns the likeliest parameters: the logarithms of a length scale for each dimension, and of the
    others."""
    start = usual(int(seen.groups.max()) + 1)
    found = minimize(
        _loss,
        start,
        args=(seen, start),
        jac=True,
        method="L-BFGS-B",
        bounds=np.column_stack([start - REACH * SPREAD, start + REACH * SPREAD]),
        options={"maxiter": STEPS},
    )
    return np.asarray(found.x, float)


def usual(dimensions: int) -> Array:
    """Returns the priors' medians: parameters for a process that has seen nothing."""
    lengths = [USUAL_LENGTH * dimensions**0.5] * dimensions
    parameters: Array = np.log(np.array([*lengths, *USUAL.values()]))
    return parameters


def _loss(parameters: Array, seen: Scored, centre: Array) -> tuple[float, Array]:
    """Returns the negative logarithm of likelihood times prior, up to a constant, and its gradient
    (Rasmussen and Williams, equations 5.8 and 5.9)."""
    inverse = np.exp(-parameters[: -len(USUAL)])[seen.groups]
    change, pace, _, _, noise = np.exp(parameters[CHANGE:])
    scaled = seen.features * inverse
    of_trials, of_times, by_square = _terms(cdist(scaled, scaled), seen.gaps, parameters)
    covariance = of_trials + of_times
    covariance[np.diag_indices_from(covariance)] += noise + JITTER
    factor = cholesky(covariance, lower=True, check_finite=False)
    weights = cho_solve((factor, True), seen.scores, check_finite=False)
    slope = 0.5 * (
        np.outer(weights, weights) - cho_solve((factor, True), np.eye(len(weights)), check_finite=False)
    )
    likelihood = -0.5 * seen.scores @ weights - np.log(np.diag(factor)).sum()
    gradient = np.concatenate(
        [
            _by_length(slope * by_square, scaled, seen.groups),
            [
                (slope * of_trials * seen.gaps).sum() / change,
                (slope * of_times * seen.gaps).sum() / pace,
                (slope * of_trials).sum(),
                (slope * of_times).sum(),
                noise * np.trace(slope),
            ],
        ]
    )
    off = (parameters - centre) / SPREAD
    return float(0.5 * off @ off - likelihood), off / SPREAD - gradient


def _terms(distances: Array, gaps: Array, parameters: Array) -> tuple[Array, Array, Array]:
    """Returns the covariance's two terms, and twice the slope of the first by a squared distance, negated."""
    change, pace, size, drift, _ = np.exp(parameters[CHANGE:])
    scaled = 5.0**0.5 * distances
    decayed = size * np.exp(-scaled - gaps / change)
    by_square = (5 / 3) * (1 + scaled) * decayed
    return decayed * (1 + scaled + scaled**2 / 3), drift * np.exp(-gaps / pace), by_square


def _by_length(slope: Array, scaled: Array, groups: Groups) -> Array:
    """Returns the sums of a symmetric `slope` times squared distances, by dimension."""
    by_column = 2 * (slope.sum(axis=1) @ scaled**2 - (scaled * (slope @ scaled)).sum(axis=0))
    return np.asarray(np.bincount(groups, by_column), float)
