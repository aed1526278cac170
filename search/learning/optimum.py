"""Where in each range of a search its best value may lie, and how sure its trials make that.

The answer comes from the model that proposes trials (`search.deciding.surrogate`): a Gaussian process over
all trials and levels. A dimension's effect is the process along that dimension, averaged over the best
trials' other values (the main effect of functional ANOVA, Hutter et al. 2014, among good trials). Effects are
drawn from the process, and the best value may lie where a draw is highest (Thompson sampling, or p_min in
Hennig and Schuler 2012, JMLR 13). So the answer stays open after few or failed trials, and for a dimension
that does nothing. It does not matter where a sampler drew most trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr

from search.deciding.cube import Cube, CubeRows
from search.deciding.gaussian_process import JITTER, GaussianProcess, fitted
from search.deciding.observations import Observation, score_table
from search.deciding.surrogate import MOST_FITTED, MOST_SCORES, scored
from spaces.domains import Choice, Value, fraction_of, value_at
from spaces.space import Space

POINTS = 33  # an effect is computed at so many values of a range
AMONG = 8  # it is averaged over the other values of so many of the best trials
DRAWS = 400  # so many effects are drawn
PARTS = 5  # the trials are divided into so many parts, and a model of the other parts foresees each one
# nothing is learned where luck alone would foresee the scores as well with at least this probability; our
# choice
CHANCE = 0.01
# a value counts as good as the best one if it loses less than this, in standard deviations of all scores: in
# the middle that is 10 ranks of 100. So a dimension with hardly any effect has no best value. Our choice
AS_GOOD = 0.25


@dataclass(frozen=True)
class Optimum:
    """Values of one dimension, and for each the probability that it is the best of them."""

    values: tuple[Value, ...]
    shares: tuple[float, ...]


def optima(space: Space, observed: Sequence[Observation]) -> Mapping[str, Optimum]:
    """Return where the best value of each dimension may lie, by its name; `observed` is never empty.

    A dimension that no trial has is left out. Nothing is returned where the model cannot foresee a trial's
    score from other trials: then luck explains the scores as well as their values do.
    """
    cube, scores = Cube(space), score_table(observed)
    if _chance(cube, observed) >= CHANCE:
        return {}
    parameters = fitted(scored(cube, scores, scores.normal_scores, MOST_FITTED))
    process = GaussianProcess(scored(cube, scores, scores.normal_scores, MOST_SCORES), parameters)
    rows = np.array(scores.trials)
    means, _ = process.predict(cube.features(rows), 1.0)
    best_first = rows[np.argsort(-means, kind="stable")]
    optima: dict[str, Optimum] = {}
    for at, dimension in enumerate(space.dimensions):
        among = best_first[~np.isnan(best_first[:, at])][:AMONG]
        domain = dimension.domain
        spread = ((number + 0.5) / POINTS for number in range(POINTS))
        values = (
            domain.options
            if isinstance(domain, Choice)
            else tuple(dict.fromkeys(value_at(domain, each) for each in spread))
        )
        if len(among) and len(values) > 1:
            positions = [fraction_of(domain, each) for each in values]
            optima[dimension.name] = Optimum(values, _shares(cube, process, at, positions, among))
    return optima


def _chance(cube: Cube, observed: Sequence[Observation]) -> float:
    """Return how likely luck alone would foresee the trials' last scores as well as the model does.

    The scores of each part of the trials are foreseen by a model of the other parts, which is fitted to these
    alone (cross-validation). Scores and forecasts count by their distance from the mean of their level. The
    probability is that of so high a correlation between the two.
    """
    scores = score_table(observed)
    last = np.array([np.flatnonzero(scores.places == at)[-1] for at in range(len(observed))])
    actual, foreseen = scores.normal_scores[last], _foreseen(cube, observed, scores.epochs[last])
    for epoch in np.unique(scores.epochs[last]):
        at = scores.epochs[last] == epoch
        actual[at] -= actual[at].mean()
        foreseen[at] -= foreseen[at].mean()
    if not actual.any() or not foreseen.any():
        return 1.0
    return float(pearsonr(actual, foreseen, alternative="greater").pvalue)


def _foreseen(
    cube: Cube, observed: Sequence[Observation], epochs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the normal score that each trial should have at its epoch, by trials of the other parts."""
    rows = np.array([each.row for each in observed])
    foreseen = np.empty(len(observed))
    for part in range(PARTS):
        out = np.arange(len(observed)) % PARTS == part
        others = score_table([each for each, is_out in zip(observed, out, strict=True) if not is_out])
        training = scored(cube, others, others.normal_scores, MOST_FITTED)
        process = GaussianProcess(training, fitted(training))
        for epoch in np.unique(epochs[out]):
            at = out & (epochs == epoch)
            foreseen[at], _ = process.predict(cube.features(rows[at]), float(others.times_of(epoch)))
    return foreseen


def _shares(
    cube: Cube, process: GaussianProcess, at: int, positions: Sequence[float], among: CubeRows
) -> tuple[float, ...]:
    """Return, for each position of a dimension, in what share of the draws of its effect it is the best.

    Where several are good in one draw, they share it.
    """
    rows = np.repeat(np.where(np.isnan(among), 0.5, among)[None], len(positions), axis=0)
    rows[:, :, at] = np.array(positions)[:, None]
    features = cube.features(cube.exact(rows.reshape(-1, len(cube))))
    means, covariance = process.predict_together(features)
    shape = (len(positions), len(among))
    effect = means.reshape(shape).mean(axis=1)
    spread = covariance.reshape(*shape, *shape).mean(axis=(1, 3))
    drawn = _draws(effect, spread)
    good = drawn >= drawn.max(axis=1, keepdims=True) - AS_GOOD
    shares: NDArray[np.float64] = (good / good.sum(axis=1, keepdims=True)).mean(axis=0)
    return tuple(shares.tolist())


def _draws(means: NDArray[np.float64], covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return draws of a normal vector, (DRAWS, n), the same ones every time."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, JITTER))
    normal = np.random.default_rng(0).standard_normal((DRAWS, len(means)))
    drawn: NDArray[np.float64] = means + normal @ root.T
    return drawn
