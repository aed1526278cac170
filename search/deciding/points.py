"""Defines samplers without a history, which map points of the unit cube (docs/decisions/0004)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from search.deciding.sampler import Sampler
from search.record.journal import TrialEnd
from spaces.domains import Value
from spaces.space import Space


class PointSampler(Sampler):
    """A sampler that maps points of the unit cube, one coordinate per dimension, through the priors, and
    learns nothing.

    The coordinate of a dimension that a trial does not have is not used.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed

    @abstractmethod
    def point(self, number: int, size: int) -> list[float]:
        """Return the trial's point in [0, 1)^size."""

    def ask(self, number: int) -> dict[str, Value]:
        names = [dimension.name for dimension in self._space.dimensions]
        fractions = dict(zip(names, self.point(number, len(names)), strict=True))
        return self._space.sample(lambda dimension: fractions[dimension.name])

    def add(self, number: int, values: Mapping[str, Value]) -> None:
        """Do nothing: there is nothing to remember."""

    def tell(
        self,
        number: int,
        outcome: TrialEnd,
        scores: Mapping[int, float],
        excesses: Mapping[str, float] | None = None,
        seconds: float | None = None,
    ) -> None:
        """Do nothing: there is nothing to learn."""


class RandomSampler(PointSampler):
    """A sampler of independent uniform points."""

    def point(self, number: int, size: int) -> list[float]:
        import numpy as np

        point: list[float] = np.random.default_rng((self._seed, number)).random(size).tolist()
        return point


class SobolSampler(PointSampler):
    """A sampler of a scrambled Sobol sequence, which fills the cube more uniformly (Owen 1998, J. Complexity
    14).

    Optuna's QMCSampler stores its position in the study and draws conditional dimensions at random. Here the
    position is the trial's number, and every dimension has a coordinate. Trial 0 is the documented
    recipe, so trial 1 gets the sequence's first point.
    """

    def point(self, number: int, size: int) -> list[float]:
        from scipy.stats import qmc

        if size == 0:
            return []
        sequence = qmc.Sobol(size, scramble=True, rng=self._seed)
        if number > 1:  # SciPy refuses to go forward by 0
            sequence.fast_forward(number - 1)
        point: list[float] = sequence.random(1)[0].tolist()
        return point
