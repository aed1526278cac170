"""Defines what a sampler is, which draws the values of the next trial, and samplers without a history.

A draw is a function of the seed, the trial's number and what the sampler knows of the earlier trials. So a
search that was killed and rebuilt from its journal draws what one that never stopped would have drawn. So
does a search in another process: the same seed and the same results give the same trials.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from search.deciding.scheduler import Scheduler
from search.record.journal import TrialEnd, TrialEvent
from search.record.record import Record
from spaces.domains import Value
from spaces.space import Space


def seed_of_trial(seed: int, number: int) -> int:
    """Return the seed of one trial's draw, computed from the search's seed."""
    import numpy as np

    return int(np.random.SeedSequence((seed, number)).generate_state(1)[0])


class Sampler(ABC):
    """Whatever draws the values of trials.

    Its numbers count the trials that it knows, from 0 without gaps. They are the search's numbers until a
    trial is repeated, and may be lower after that: a search that is extended draws on after its repeats.
    """

    @abstractmethod
    def ask(self, number: int) -> dict[str, Value]:
        """Draw the values of a new trial, by dotted path. A call changes nothing."""

    @abstractmethod
    def add(self, number: int, values: Mapping[str, Value]) -> None:
        """Remember a trial that has these values and has not ended: TPE avoids its neighbourhood."""

    def report(self, number: int, scores: Mapping[int, float], seconds: float | None = None) -> None:
        """Hear the objective by epoch of a trial that has passed a rung and trains on, and what its epochs
        took on average.

        Unless a sampler says otherwise, it learns nothing from a trial before its end.
        """
        return

    @abstractmethod
    def tell(
        self,
        number: int,
        outcome: TrialEnd,
        scores: Mapping[int, float],
        excesses: Mapping[str, float] | None = None,
        seconds: float | None = None,
    ) -> None:
        """Learn that a trial has ended; `scores` holds its objective by epoch.

        A trial that pauses at a rung counts as `stopped` there. It is told again, with more scores, when it
        pauses at the next one and when it ends: what was told last replaces what was told before.

        `excesses` says by what share of its limit each cost of its network is above it; below it if negative.
        `seconds` is what its epochs took on average; None where it trained none.
        """


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


class SamplerBridge:
    """A sampler and a scheduler, joined with the record of a search; `metric` is the objective.

    Both learn from the same trials: from no repeats, and from none outside the space. The sampler numbers
    these without gaps; the scheduler has the search's own numbers.
    """

    def __init__(self, sampler: Sampler, scheduler: Scheduler, record: Record, metric: str) -> None:
        self._sampler = sampler
        self._scheduler = scheduler
        self._record = record
        self._metric = metric
        self._numbers: dict[int, int] = {}  # the sampler's number of each trial that it knows

    def draw(self) -> Mapping[str, Value]:
        """Return the values of a new trial."""
        return self._sampler.ask(len(self._numbers))

    def add(self, event: TrialEvent) -> None:
        """Let both know of a new trial, unless a person asked for it outside the space."""
        if event.first is None or not event.first.outside:
            self._numbers[event.trial] = len(self._numbers)
            self._sampler.add(self._numbers[event.trial], event.values)
            self._scheduler.add(event.trial, event.values)

    def report(self, trial: int) -> None:
        """Tell the sampler the scores so far of a trial that has passed a rung, if it knows the trial."""
        if (known := self._numbers.get(trial)) is not None:
            found = self._record.trials[trial]
            self._sampler.report(known, found.scores(self._metric), found.epoch_seconds)

    def tell(self, trial: int, outcome: TrialEnd) -> None:
        """Tell both how a trial ended or paused, by the record, if they know the trial."""
        if (known := self._numbers.get(trial)) is not None:
            found, excesses = self._record.trials[trial], self._record.excesses(trial)
            scores = found.scores(self._metric)
            self._sampler.tell(known, outcome, scores, excesses, found.epoch_seconds)
            self._scheduler.tell(trial, outcome, scores, excesses)
