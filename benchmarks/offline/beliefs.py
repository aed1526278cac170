"""Priors of known worth on a task: near the best of a few even draws, ten times off, near the worst.

PriorBand's authors do the same (arXiv 2306.12370), except that a prior costs 25 draws and not thousands. A
search does not pay for the draws behind its prior: a person who wrote it knew something.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from offline.search_task import BareSpace, SearchTask, Trained, Values, seed_of
from spaces.domains import Choice, Domain, Float, Integer, Value, fraction_of, index_of, value_at
from spaces.priors import Confidence, believed, likeliest
from spaces.space import Believed, Dimension

Worth = Literal["right", "off", "adversarial"]

DRAWS = 25
FACTOR = 10.0  # displaces `off` on a logarithmic range
SHARE = 1 / 3  # of a linear range displaces `off`, as a factor of 10 is of three decades


def believing(task: SearchTask, worth: Worth, seed: int, confidence: Confidence = "medium") -> BareSpace:
    """Return the task's space with a prior on each dimension, and the priors' mode as its first trial.

    Each dimension is centred on the best (`adversarial`: the worst) of the draws that have it. A dimension
    that no draw has gets no prior.
    """
    draws = sorted(task.even_draws(DRAWS, seed), key=task.final, reverse=worth != "adversarial")
    random = np.random.default_rng((seed_of(task.name, seed), 1))
    dimensions = []
    for dimension in task.space.dimensions:
        centre = _centre(task.space, dimension, draws)
        if centre is not None and worth == "off":
            centre = displaced(dimension.domain, centre, random)
        dimensions.append(dimension if centre is None else _around(dimension, centre, confidence))
    space = replace(task.space, dimensions=tuple(dimensions))
    return replace(space, own=space.define(lambda dimension, prior: likeliest(dimension.domain, prior)))


def displaced(domain: Domain, value: Value, random: np.random.Generator) -> Value:
    """Return a value ten times larger or smaller, or a third of a linear range away, or another option.

    The direction is drawn. A value that leaves the range stops at its end; one that is at the end already
    goes the other way.
    """
    match domain:
        case Choice(options=options):
            others = [each for at, each in enumerate(options) if at != index_of(domain, value)]
            return others[random.integers(len(others))] if others else value
        case Float() | Integer():
            at = fraction_of(domain, value)
            step = float(random.choice((-1, 1))) * _step(domain)
            moved = [min(max(at + each, 0.0), math.nextafter(1.0, 0.0)) for each in (step, -step)]
            values = [value_at(domain, each) for each in moved]
            return values[0] if not _same(domain, values[0], value) else values[1]


def _step(domain: Float | Integer) -> float:
    return math.log(FACTOR) / math.log(domain.high / domain.low) if domain.log else SHARE


def _same(domain: Domain, one: Value, other: Value) -> bool:
    return abs(fraction_of(domain, one) - fraction_of(domain, other)) < 1e-9


def _centre(space: BareSpace, dimension: Dimension, draws: Sequence[Trained]) -> Value:
    """Return the dimension's value in the first of the draws that have it."""
    named: list[Values] = [space.named(draw.values) for draw in draws]
    return next((each[dimension.name] for each in named if dimension.name in each), None)


def _around(dimension: Dimension, centre: Value, confidence: Confidence) -> Dimension:
    return replace(dimension, beliefs=Believed(believed(dimension.domain, centre, confidence)))
