"""How much a space expects: how far its priors draw trials together, against even draws."""

from __future__ import annotations

import math
import random
from functools import lru_cache
from typing import assert_never

from spaces.domains import Domain, Value
from spaces.priors import Normal, Prior, Uniform, Weights, density, drawn
from spaces.space import Dimension, Space

DRAWS, POINTS = 64, 64


def concentration(space: Space) -> float:
    """Bits by which the priors narrow the space down; 0 where nothing is believed of any dimension.

    The relative entropy of draws from the priors against even draws: 3 bits say that trials fall together as
    if the space were an eighth of its size. What is believed may depend on values drawn before, so the mean
    over a few draws is taken, the same ones every time.
    """
    return sum(_bits(space, random.Random(draw)) for draw in range(DRAWS)) / DRAWS


@lru_cache(maxsize=1024)
def narrowing(domain: Domain, prior: Prior) -> float:
    """Bits by which a prior narrows its domain: a range about 1 with high confidence, 0.2 with medium."""
    match prior:
        case Uniform():
            return 0.0
        case Weights(shares=shares):
            return sum(share * math.log2(len(shares) * share) for share in shares)
        case Normal():
            values = [drawn(domain, prior, (point + 0.5) / POINTS) for point in range(POINTS)]
            return sum(math.log2(density(domain, prior, value)) for value in values) / POINTS
        case _:
            assert_never(prior)


def _bits(space: Space, chance: random.Random) -> float:
    """The bits of the dimensions that one trial has."""
    bits = 0.0

    def draw(dimension: Dimension, prior: Prior) -> Value:
        nonlocal bits
        bits += narrowing(dimension.domain, prior)
        return drawn(dimension.domain, prior, chance.random())

    space.define(draw)
    return bits
