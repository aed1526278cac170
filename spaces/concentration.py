"""Measures how strongly a space's priors concentrate its trials, compared with uniform draws."""

from __future__ import annotations

import math
import random
from functools import lru_cache
from typing import assert_never

from spaces.domains import Domain, Value
from spaces.priors import Normal, Prior, Uniform, Weights, density, quantile_value
from spaces.space import Dimension, Space

DRAWS, POINTS = 64, 64


def concentration(space: Space) -> float:
    """Return the number of bits by which the priors narrow the space; 0 if every prior is uniform.

    This is the relative entropy of draws from the priors to uniform draws: 3 bits mean that trials lie as
    close together as if the space were an eighth of its size. A prior may depend on values drawn before it,
    so this is the mean over a few draws, which are the same ones every time.
    """
    return sum(_bits(space, random.Random(draw)) for draw in range(DRAWS)) / DRAWS


@lru_cache(maxsize=1024)
def narrowing(domain: Domain, prior: Prior) -> float:
    """Return the bits by which a prior narrows its domain:
    about 1 for a range with high confidence, 0.2 with medium."""
    match prior:
        case Uniform():
            return 0.0
        case Weights(shares=shares):
            return sum(share * math.log2(len(shares) * share) for share in shares)
        case Normal():
            values = [quantile_value(domain, prior, (point + 0.5) / POINTS) for point in range(POINTS)]
            return sum(math.log2(density(domain, prior, value)) for value in values) / POINTS
        case _:
            assert_never(prior)


def _bits(space: Space, rng: random.Random) -> float:
    """Return the sum of the bits of the dimensions that one trial has."""
    bits = 0.0

    def draw(dimension: Dimension, prior: Prior) -> Value:
        nonlocal bits
        bits += narrowing(dimension.domain, prior)
        return quantile_value(dimension.domain, prior, rng.random())

    space.define(draw)
    return bits
