"""Search tasks whose trials cost nothing: a space, and a learning curve for any values of it.

A curve holds the score after each epoch, higher is better (a loss is negated), and is shorter where the run
diverged. Nothing here is a Recipe; the product's own samplers search these spaces all the same.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.deciding.sampler import RandomSampler
from spaces.domains import Domain, SpaceError, Value
from spaces.space import Dimension, Space, When

EVEN_DRAWS = 200
WORST = -math.inf  # the final score of a run that diverged

Values = Mapping[str, Value]
Points = NDArray[np.float64]


class Trained(NamedTuple):
    """A trial's true values, and the score after each epoch before it diverged."""

    values: Values
    curve: Sequence[float]


Train = Callable[[Values], Trained]


class BareSpace(Space):
    """A space of values that make no Recipe: samplers draw from it as from others, and `recipe` refuses."""

    def __post_init__(self) -> None:
        if faults := [*self._order_faults(), *self._prior_faults()]:
            raise SpaceError(faults)


@dataclass(frozen=True)
class SearchTask:
    """What is searched; `grace` is ASHA's first rung."""

    name: str
    space: BareSpace
    epochs: int
    grace: int
    best: Callable[[], float]  # the best final score known: of a table's rows, or of 20,000 even draws
    begin: Callable[[], Train]  # starts a search; a table gives each of its rows to one trial only

    def final(self, trained: Trained) -> float:
        """Return the score after the last epoch; the worst possible one for a run that diverged before."""
        return trained.curve[-1] if len(trained.curve) == self.epochs else WORST

    def even_draws(self, count: int, seed: int) -> list[Trained]:
        """Return trials at even draws from the space, each as if it were a search's first."""
        sampler = RandomSampler(self.space, seed_of(self.name, seed))
        return [self.begin()(sampler.ask(number)) for number in range(count)]

    @property
    def usual(self) -> float:
        """The median final score of 200 even draws."""
        return float(np.median([self.final(each) for each in self.even_draws(EVEN_DRAWS, seed=-1)]))


def seed_of(name: str, seed: int) -> int:
    """Return a seed of this task's own, so that no two tasks see the same draws."""
    sequence = np.random.SeedSequence((zlib.crc32(name.encode()), seed + 2))
    return int(sequence.generate_state(1)[0])


def dimension(path: str, domain: Domain, when: When | None = None, variant: str = "") -> Dimension:
    """Return a dimension of a task, without a prior."""
    return Dimension(path, domain, "as published", "the benchmark", when, variant)


def data() -> Path:
    """Return the folder of curves and images, TUNEBOOK_DATA. Raises KeyError where it is not set."""
    return Path(os.environ["TUNEBOOK_DATA"])
