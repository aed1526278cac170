"""Fits a Gaussian process to scores of trials at several epochs, with NumPy and SciPy alone.

The covariance of two scores is

    size * matern(x, x') * exp(-|t - t'| / change) + drift * exp(-|t - t'| / pace), and noise on the diagonal:

x is a trial (a row of features, on axes that are bent as scores demand: `warped`), t
an epoch (on a logarithmic scale, in [0, 1]). The first term lets scores of one epoch say less and less about
those of others, the second moves all trials together. `matern` has the smoothness 5/2 and a length scale for
each dimension (Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, section 4.2). Parameters
are the likeliest ones under weak log-normal priors (section 5.4.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from threadpoolctl import ThreadpoolController

Groups = NDArray[np.int64]

STEPS = 15  # of L-BFGS; more changed no draw for the better
# added to the variance of every score; of one that is taken for certain, instead of noise
JITTER, CERTAIN = 1e-6, 1e-4
# where the parameters stand that follow a length scale and the two numbers that bend an axis, for each
# dimension. All are logarithms
CHANGE, PACE, SIZE, DRIFT, NOISE = range(-5, 0)
# the medians of the priors, for scores with a variance of about 1
USUAL = {CHANGE: 1.0, PACE: 1.0, SIZE: 0.7, DRIFT: 0.3, NOISE: 0.05}
# the median of a length scale is this times the root of the number of dimensions, which keeps distances alike
# in spaces of any size (Hvarfner et al., arXiv 2402.02229, section 4)
USUAL_LENGTH = 0.25
# the standard deviation of each logarithm under its prior; that of the numbers that bend axes, whose medians
# are 1
SPREAD, BENT_SPREAD = 1.0, 0.75
EDGE = 1e-6  # positions keep so far from the ends of an axis, where slopes can be infinite
REACH = 4.0  # parameters are searched within so many standard deviations

Reals = NDArray[np.float64]
BLAS = ThreadpoolController()
Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def in_one_thread(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Return the function with BLAS in one thread while it runs.

    More gain nothing on matrices of a few hundred rows, and wait for one another where trials keep all
    processors busy: a fit to 150 scores took 8 to 12 s instead of 0.6 (docs/decisions/0034).
    """
    alone: Callable[Given, Returned] = BLAS.wrap(limits=1, user_api="blas")(function)
    return alone


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """The n scores: features (n, columns), the dimension of each column (columns,), times (n,), scores
    (n,)."""

    features: Reals
    groups: Groups
    times: Reals
    scores: Reals

    def joined(self, features: Reals, times: Reals, scores: Reals) -> ScoredRows:
        """Return these scores and others."""
        return ScoredRows(
            np.vstack([self.features, features]),
            self.groups,
            np.concatenate([self.times, times]),
            np.concatenate([self.scores, scores]),
        )

    @cached_property
    def bends(self) -> NDArray[np.bool_]:
        """Which columns are positions, not options, (columns,)."""
        bends: NDArray[np.bool_] = np.bincount(self.groups)[self.groups] == 1
        return bends

    @cached_property
    def gaps(self) -> Reals:
        """The distances in time, (n, n)."""
        return np.abs(self.times[:, None] - self.times[None, :])


class GaussianProcess:
    """A prediction of scores, conditioned on those seen; `parameters` are those of `fitted`. The last
    `certain` ones have no noise."""

    @in_one_thread
    def __init__(self, seen: ScoredRows, parameters: Reals, certain: int = 0) -> None:
        self._seen, self._parameters = seen, parameters
        self._scaled = _scaled(seen.features, seen, parameters)
        covariance = self._covariance(self._scaled, self._scaled, seen.gaps)
        noise = np.repeat([self.noise, CERTAIN], [len(covariance) - certain, certain])
        covariance[np.diag_indices_from(covariance)] += noise + JITTER
        self._factor = cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        self._weights = cho_solve((self._factor, True), seen.scores, check_finite=False)

    @property
    def noise(self) -> float:
        """The variance of a score around what is predicted."""
        return float(np.exp(self._parameters[NOISE]))

    @in_one_thread
    def predict(self, features: Reals, time: float) -> tuple[Reals, Reals]:
        """Return the mean and the standard deviation of the score of each row at a time, without noise."""
        across, explained = self._known_of(self._scale(features), time)
        variance = np.exp(self._parameters[[SIZE, DRIFT]]).sum() - np.square(explained).sum(axis=0)
        return across @ self._weights, np.sqrt(np.maximum(variance, JITTER))

    @in_one_thread
    def predict_together(self, features: Reals) -> tuple[Reals, Reals]:
        """Return the means (n,) of the scores of n rows at the end (time 1), and their covariances (n, n)."""
        scaled = self._scale(features)
        across, explained = self._known_of(scaled, 1.0)
        return across @ self._weights, self._covariance(scaled, scaled, np.zeros(1)) - explained.T @ explained

    def _scale(self, features: Reals) -> Reals:
        return _scaled(features, self._seen, self._parameters)

    def _known_of(self, scaled: Reals, time: float) -> tuple[Reals, Reals]:
        """Return the covariances of other scores (rows), at a time, with those seen (columns), and their
        transpose after the factor's inverse: its squares say how much of a variance is explained."""
        across = self._covariance(scaled, self._scaled, np.abs(self._seen.times - time))
        return across, solve_triangular(self._factor, across.T, lower=True, check_finite=False)

    def _covariance(self, scaled: Reals, others: Reals, gaps: Reals) -> Reals:
        """Return the covariances of scores (rows) with others (columns); `gaps` in time have either shape,
        or that of the columns alone."""
        of_trials, of_times = _terms(_distances(scaled, others), gaps, self._parameters)
        covariance: Reals = of_trials + of_times
        return covariance


@in_one_thread
def fitted(seen: ScoredRows) -> Reals:
    """Return the likeliest parameters: three logarithms for each dimension, and those of the others."""
    start = usual(int(seen.groups.max()) + 1)
    reach = REACH * _spreads(len(start))
    found = minimize(
        _loss,
        start,
        args=(seen, start),
        jac=True,
        method="L-BFGS-B",
        bounds=np.column_stack([start - reach, start + reach]),
        options={"maxiter": STEPS},
    )
    return np.asarray(found.x, float)


def usual(dimensions: int) -> Reals:
    """Return the priors' medians: parameters for a process that has seen nothing."""
    lengths = [USUAL_LENGTH * dimensions**0.5] * dimensions
    parameters: Reals = np.log(np.array([*lengths, *[1.0] * (2 * dimensions), *USUAL.values()]))
    return parameters


def _spreads(parameters: int) -> Reals:
    """Return the standard deviations of as many parameters under their priors."""
    dimensions = (parameters - len(USUAL)) // 3
    return np.repeat([SPREAD, BENT_SPREAD, SPREAD], [dimensions, 2 * dimensions, len(USUAL)])


def _by_column(parameters: Reals, groups: Groups) -> tuple[Reals, Reals]:
    """Return the logarithms of each column's length scale, (columns,), and of what bends it,
    (2, columns)."""
    lengths, *shapes = parameters[: -len(USUAL)].reshape(3, -1)[:, groups]
    return lengths, np.array(shapes)


def _scaled(features: Reals, seen: ScoredRows, parameters: Reals) -> Reals:
    """Return features on bent axes, in length scales."""
    lengths, shapes = _by_column(parameters, seen.groups)
    scaled: Reals = warped(features, shapes, seen.bends) * np.exp(-lengths)
    return scaled


def _loss(parameters: Reals, seen: ScoredRows, centre: Reals) -> tuple[float, Reals]:
    """Return the negative logarithm of likelihood times prior, up to a constant, and its gradient
    (Rasmussen and Williams, equations 5.8 and 5.9)."""
    lengths, shapes = _by_column(parameters, seen.groups)
    change, pace, _, _, noise = np.exp(parameters[CHANGE:])
    scaled = _scaled(seen.features, seen, parameters)
    far = _distances(scaled, scaled)
    of_trials, of_times = _terms(far, seen.gaps, parameters)
    by_square = of_trials * (5 / 3) * (1 + far) / (1 + far + far**2 / 3)  # -2 d(of_trials) / d(distance**2)
    covariance = of_trials + of_times
    covariance[np.diag_indices_from(covariance)] += noise + JITTER
    factor = cholesky(covariance, lower=True, check_finite=False)
    weights = cho_solve((factor, True), seen.scores, check_finite=False)
    slope = 0.5 * (
        np.outer(weights, weights) - cho_solve((factor, True), np.eye(len(weights)), check_finite=False)
    )
    likelihood = -0.5 * seen.scores @ weights - np.log(np.diag(factor)).sum()
    slope_by_row = _slope_by_row(slope * by_square, scaled)
    by_shape = (slope_by_row * np.exp(-lengths) * slopes(seen.features, shapes, seen.bends)).sum(axis=1)
    by_column = np.vstack([-(slope_by_row * scaled).sum(axis=0), by_shape])
    gradient = np.concatenate(
        [
            *(np.bincount(seen.groups, each) for each in by_column),
            [
                (slope * of_trials * seen.gaps).sum() / change,
                (slope * of_times * seen.gaps).sum() / pace,
                (slope * of_trials).sum(),
                (slope * of_times).sum(),
                noise * np.trace(slope),
            ],
        ]
    )
    spreads = _spreads(len(parameters))
    off = (parameters - centre) / spreads
    return float(0.5 * off @ off - likelihood), off / spreads - gradient


def _distances(scaled: Reals, others: Reals) -> Reals:
    """Return how far rows are from others, times the root of 5, as the Matern kernel has it."""
    far: Reals = 5.0**0.5 * cdist(scaled, others)
    return far


def _terms(far: Reals, gaps: Reals, parameters: Reals) -> tuple[Reals, Reals]:
    """Return the covariance's two terms, by what `_distances` returns."""
    change, pace, size, drift, _ = np.exp(parameters[CHANGE:])
    of_trials = (1 + far + far**2 / 3) * np.exp(-far)
    return of_trials * (size * np.exp(-gaps / change)), drift * np.exp(-gaps / pace)


def _slope_by_row(slope: Reals, scaled: Reals) -> Reals:
    """Return the derivatives by each row x_i, (n, columns), of a sum whose derivative by the squared
    distance of x_i and x_j is -slope_ij / 2: these are 2 sum_j slope_ij (x_j - x_i)."""
    slope_by_row: Reals = 2 * (slope @ scaled - slope.sum(axis=1)[:, None] * scaled)
    return slope_by_row


def warped(features: Reals, shapes: Reals, bends: NDArray[np.bool_]) -> Reals:
    """Return features (n, columns) on bent axes, so that a smooth model fits scores which change fast near
    one end of a range.

    A position x in [0, 1] becomes 1 - (1 - x^a)^b, the Kumaraswamy distribution's function, which is close to
    that of the Beta distribution in Snoek et al. (arXiv 1402.0929, section 3) and has a simple slope. With a
    = b = 1 nothing is bent.

    `shapes` are the logarithms of a and b of each column, (2, columns); `bends` says which columns are
    positions, (columns,). The others stay as they are.
    """
    a, b = np.exp(shapes[:, bends])
    bent = features.copy()
    bent[:, bends] = 1.0 - (1.0 - _inside(features[:, bends]) ** a) ** b
    return bent


def slopes(features: Reals, shapes: Reals, bends: NDArray[np.bool_]) -> Reals:
    """Return the derivatives of what `warped` returns by the two rows of `shapes`, (2, n, columns)."""
    a, b = np.exp(shapes[:, bends])
    x = _inside(features[:, bends])
    power = x**a
    found = np.zeros((2, *features.shape))
    found[0][:, bends] = a * b * (1.0 - power) ** (b - 1.0) * power * np.log(x)
    found[1][:, bends] = -b * (1.0 - power) ** b * np.log1p(-power)
    return found


def _inside(positions: Reals) -> Reals:
    inside: Reals = np.clip(positions, EDGE, 1.0 - EDGE)
    return inside
