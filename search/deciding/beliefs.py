"""Measures how far trials support the priors of a space, and draws from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, spearmanr

from search.record.journal import TrialEnd
from spaces.domains import Choice, Domain, SpaceError, Value, value_at
from spaces.priors import Prior, density, likeliest, quantile_value
from spaces.space import Dimension, Space
from trainable.recipe.metrics import Mode
from trainable.training.metrics import sign_of

EVEN_EVERY = 5  # a sampler draws one trial in so many evenly, whatever the priors say
# after so many trials the priors' share begins to fall, as this number over the number of trials
UNDIMINISHED = 20
SAME = 1e-6  # two values count as one where they differ by less than this part of a range

SortKey = tuple[int, int, float]  # a key that sorts trials, the best first
Drawn = Literal["likeliest", "prior", "even"]


def draw(space: Space, way: Drawn, rng: np.random.Generator) -> dict[str, Value]:
    """Return a trial's values: each prior's likeliest ones, draws from the priors, or even draws."""
    return space.define(lambda dimension, prior: _value(way, dimension.domain, prior, rng))


def belief(space: Space, values: Mapping[str, Value]) -> float:
    """Return how likely the priors make a trial, as the logarithm of the ratio to even draws. The values lie
    in their domains."""
    total = 0.0

    def add(dimension: Dimension, prior: Prior) -> Value:
        nonlocal total
        value = values[dimension.path]
        total += math.log(max(density(dimension.domain, prior, value), math.ulp(0.0)))
        return value

    space.define(add)
    return total


def trust(beliefs: Sequence[float], standings: Sequence[float] | NDArray[np.int64]) -> float:
    """Return how far the trials support the priors, in [0, 1].

    `standings` say how good each trial is, higher is better, and `beliefs` how likely the priors make it. It
    is 1 as long as better trials are not less likely under the priors than worse ones. Otherwise it is twice
    the probability of a rank correlation at least so low if the two were independent.
    """
    if len(beliefs) < 4 or len(set(beliefs)) == 1 or len(set(standings)) == 1:
        return 1.0
    correlation = float(spearmanr(beliefs, standings).statistic)
    return min(1.0, 2.0 * float(norm.cdf(correlation * math.sqrt(len(beliefs) - 1))))


def rank_of(
    outcome: TrialEnd, scores: Mapping[int, float], direction: Mode, excess: float = 0.0
) -> SortKey | None:
    """Return a trial's rank as TPE has it; None for one that TPE ignores.

    Finished trials come first, by their score. Then come stopped ones, by the epochs that they reached and by
    their score there, then those without any score, and last those that break constraints, by their `excess`.
    """
    sign = -sign_of(direction)
    match outcome:
        case "failed":
            return None
        case "finished":
            return 0, 0, sign * scores[max(scores)]
        case "stopped" if scores:
            return 1, -max(scores), sign * scores[max(scores)]
        case "stopped" | "diverged":
            return 2, 0, 0.0
        case "infeasible":
            return 3, 0, excess


def is_likeliest(space: Space, values: Mapping[str, Value]) -> bool:
    """Return whether a trial has the priors' likeliest values."""
    expected = space.encode(space.define(lambda dimension, prior: likeliest(dimension.domain, prior)))
    try:
        found = space.encode(values)
    except SpaceError:  # a value of the documents may lie outside the searched range
        return False
    return found.keys() == expected.keys() and all(abs(found[each] - expected[each]) < SAME for each in found)


def _value(way: Drawn, domain: Domain, prior: Prior, rng: np.random.Generator) -> Value:
    """Return the value of a dimension; a domain with one option uses no random number."""
    if isinstance(domain, Choice) and len(domain.options) == 1:
        return domain.options[0]
    fraction = float(rng.random())
    match way:
        case "likeliest":
            return likeliest(domain, prior)
        case "prior":
            return quantile_value(domain, prior, fraction)
        case "even":
            return value_at(domain, fraction)
