"""Defines the schedulers, which compare trials at rungs: without clock, without Ray, rebuilt by a replay.

They are asynchronous successive halving (Li et al., arXiv 1810.05934). They differ in what happens to a trial
that is not among the best 1/factor at its rung: `Asha` stops it, `PromotionAsha` pauses it. `ModelAsha`, in a
file of its own, asks a model as well.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from search.record.journal import TrialEnd
from search.study import SchedulerKind
from spaces.domains import Value
from trainable.recipe.metrics import Mode
from trainable.training.metrics import sign_of


def rungs(grace: int, factor: int, epochs: int) -> tuple[int, ...]:
    """Return the epochs at which trials are compared: grace * factor^k below `epochs` (the last is no rung).

    They are multiplied in integers: through a logarithm 3**5 comes out as 242.99 and its rung would vanish.
    """
    if grace < 1 or factor < 2:
        raise ValueError(f"rungs need grace >= 1 and factor >= 2, got grace {grace} and factor {factor}")
    found = []
    rung = grace
    while rung < epochs:
        found.append(rung)
        rung *= factor
    return tuple(found)


def first_at_or_after(wanted: Sequence[int], allowed: Sequence[int]) -> tuple[int, ...]:
    """Return the first `allowed` epoch at or after each wanted one, each once, where there is one.

    So no more trials are stopped than the wanted rungs would stop, however close the allowed ones lie.
    """
    found = (next((epoch for epoch in allowed if epoch >= each), None) for each in wanted)
    return tuple(dict.fromkeys(epoch for epoch in found if epoch is not None))


def survivors(count: int, factor: int) -> int:
    """Return how many of `count` trials at a rung go on: floor(count / factor), but at least one."""
    return max(1, count // factor)


class RungRank(NamedTuple):
    """The place that a trial has at a rung, among how many trials, and how many of these go on."""

    place: int  # 1 is the best
    among: int
    going_on: int

    @property
    def goes_on(self) -> bool:
        """Whether the trial is among those that go on."""
        return self.place <= self.going_on

    def __str__(self) -> str:
        """Return it in words, to follow the value at a rung."""
        go_on = "the best goes on" if self.going_on == 1 else f"the best {self.going_on} go on"
        return f"ranks {self.place} of {self.among}; {go_on}"


class RankedValues:
    """The values of trials in order, the best first, and of equal ones the earliest.

    A place is found by bisection: among 10,000 trials that takes as long as among 100, within microseconds.
    """

    def __init__(self, direction: Mode) -> None:
        self._sign = -sign_of(direction)
        # of each trial its value, lower for better, how many came before it, and its number
        self._order: list[tuple[float, int, int]] = []
        self._keys: dict[int, tuple[float, int, int]] = {}
        # the entries of the order whose trials may still wait
        self._waiting: list[tuple[float, int, int]] = []

    def __len__(self) -> int:
        return len(self._order)

    def add(self, trial: int, value: float) -> None:
        """Rank a trial that is not ranked yet by its value, which is finite."""
        self._keys[trial] = key = self._sign * value, len(self._order), trial
        insort(self._order, key)
        insort(self._waiting, key)

    def better(self, value: float) -> int:
        """Return how many values are strictly better than this one."""
        return bisect_left(self._order, (self._sign * value, -1, -1))

    def before(self, trial: int) -> int:
        """Return how many trials come before a ranked one, those of equal value that were earlier too."""
        return bisect_left(self._order, self._keys[trial])

    def best_waiting(self, end: int, waits: Callable[[int], bool]) -> int | None:
        """Return the best trial that waits, among those with fewer than `end` trials before them.

        A trial that does not wait when it is looked at will never wait: it is not looked at again.
        """
        while end > 0 and self._waiting and self._waiting[0] <= self._order[min(end, len(self)) - 1]:
            if waits(trial := self._waiting[0][2]):
                return trial
            del self._waiting[0]
        return None

    def worst_waiting(self, first: int, waits: Callable[[int], bool]) -> list[int]:
        """Return the trials that wait with at least `first` trials before them, in order; `waits` is asked
        as by `best_waiting`."""
        if first >= len(self):
            return []
        behind = bisect_left(self._waiting, self._order[first])
        self._waiting[behind:] = [key for key in self._waiting[behind:] if waits(key[2])]
        return [trial for _, _, trial in self._waiting[behind:]]


class Scheduler(ABC):
    """Whatever decides which trials go on, and where they are compared.

    `rungs` are epochs, rising (none: every trial is trained to its end); `direction` says which values are
    better. Only the rung just reached is recorded, so a trial that starts in the middle of its training
    cannot spoil an earlier rung.

    It is asked twice: by `report` after each epoch of a trial, and by `promoted` whenever a worker is free.
    It is told which trials are paused. What it remembers follows from its reports alone; `ModelAsha`
    remembers what is added and told, too.
    """

    kind: ClassVar[SchedulerKind]  # the word for it in a study
    # whether a trial that does not go on is paused at its rung, and not stopped
    pauses: ClassVar[bool] = False

    def __init__(self, rungs: Sequence[int], reduction_factor: int, direction: Mode) -> None:
        if list(rungs) != sorted(set(rungs)) or (rungs and rungs[0] < 1):
            raise ValueError(f"rungs must rise from 1 or more, got {list(rungs)}")
        if reduction_factor < 2:
            raise ValueError(f"reduction_factor must be at least 2, got {reduction_factor}")
        # by rung, the value of each trial that reached it, in the order of arrival
        self.recorded: dict[int, dict[int, float]] = {rung: {} for rung in rungs}
        self._ranked = {rung: RankedValues(direction) for rung in rungs}
        self.factor = reduction_factor
        self.direction = direction

    @property
    def rungs(self) -> tuple[int, ...]:
        """The epochs at which trials are compared, rising."""
        return tuple(self.recorded)

    def add(self, trial: int, values: Mapping[str, Value]) -> None:
        """Hear of a new trial with its values, as a sampler does. What only compares scores needs none."""
        return

    def tell(
        self, trial: int, outcome: TrialEnd, scores: Mapping[int, float], excesses: Mapping[str, float]
    ) -> None:
        """Hear how a trial ended or paused, as a sampler does."""
        return

    def rung_at(self, epoch: int) -> int | None:
        """Return the rung that this epoch reaches, if it reaches one."""
        return epoch if epoch in self.recorded else None

    def report(self, trial: int, epoch: int, value: float, *, exempt: bool = False) -> bool:
        """Record a trial's value and return whether it goes on at once.

        Between rungs every trial goes on. A value that is not finite stops its trial at any epoch and is not
        recorded, exempt or not. Otherwise an exempt trial is recorded and goes on. Raises ValueError for a
        second report at one rung.
        """
        if not math.isfinite(value):
            return False
        rung = self.rung_at(epoch)
        if rung is None:
            return True
        if trial in self.recorded[rung]:
            raise ValueError(f"trial {trial} has reported at rung {rung} before")
        self.recorded[rung][trial] = value
        self._ranked[rung].add(trial, value)
        return exempt or self._goes_on(trial, rung)

    def why(self, trial: int, epoch: int) -> str:
        """Return in words why a trial was stopped at an epoch, to follow its value there."""
        return str(self.rank_at(trial, epoch))

    @abstractmethod
    def rank_at(self, trial: int, rung: int) -> RungRank:
        """Return the rank of a trial that is recorded at a rung."""

    @abstractmethod
    def promoted(self, paused: Mapping[int, int], least: int = 0) -> int | None:
        """Return the paused trial that goes on next; None where none may.

        `paused` has the rung of each paused trial; from a rung that has a trial, at least `least` go on.
        A trial that has reached a rung, and is not paused there when this is asked, never will be.
        """

    @abstractmethod
    def hopeless(self, paused: Mapping[int, int], trials: int) -> list[int]:
        """Return the paused trials that can never go on, if no more than so many `trials` reach a rung."""

    @abstractmethod
    def _goes_on(self, trial: int, rung: int) -> bool:
        """Say whether a trial that has just been recorded at a rung goes on at once."""


class Asha(Scheduler):
    """A scheduler that stops trials: at each rung one goes on if it is among the best 1/factor of all values
    recorded there so far, its own included.

    Decisions are final, so the order of results matters: the first trial at a rung always goes on, and better
    trials that come later do not stop one that has passed.
    """

    kind: ClassVar[SchedulerKind] = "asha"

    def rank_at(self, trial: int, rung: int) -> RungRank:
        place = 1 + self._ranked[rung].better(self.recorded[rung][trial])
        among = len(self.recorded[rung])
        return RungRank(place, among, survivors(among, self.factor))

    def promoted(self, paused: Mapping[int, int], least: int = 0) -> int | None:
        return None

    def hopeless(self, paused: Mapping[int, int], trials: int) -> list[int]:
        return []

    def _goes_on(self, trial: int, rung: int) -> bool:
        return self.rank_at(trial, rung).goes_on


class PromotionAsha(Scheduler):
    """A scheduler that pauses every trial at every rung, and lets one go on as soon as it is among the best
    1/factor of all that have reached its rung: Algorithm 2 of the paper, with the highest rung first.

    Of equal values the earlier one is the better, so no more than 1/factor are ever the best.
    """

    kind: ClassVar[SchedulerKind] = "promotion"
    pauses = True

    def rank_at(self, trial: int, rung: int) -> RungRank:
        place, among = 1 + self._ranked[rung].before(trial), len(self.recorded[rung])
        return RungRank(place, among, survivors(among, self.factor))

    def promoted(self, paused: Mapping[int, int], least: int = 0) -> int | None:
        for rung in reversed(self.rungs):
            going_on = max(least, len(self.recorded[rung]) // self.factor)
            found = self._ranked[rung].best_waiting(going_on, _waits_at(rung, paused))
            if found is not None:
                return found
        return None

    def hopeless(self, paused: Mapping[int, int], trials: int) -> list[int]:
        most = survivors(trials, self.factor)
        return [
            trial
            for rung in self.rungs
            for trial in self._ranked[rung].worst_waiting(most, _waits_at(rung, paused))
        ]

    def _goes_on(self, trial: int, rung: int) -> bool:
        return False


def _waits_at(rung: int, paused: Mapping[int, int]) -> Callable[[int], bool]:
    """Return what says whether a trial waits at a rung."""
    return lambda trial: paused.get(trial) == rung


def expected_share(rungs: Sequence[int], factor: int, epochs: int) -> float:
    """Return the share of `epochs` that a trial trains on average when one in `factor` survives each rung.

    It is a plan, not a promise: early trials meet few rivals and are stopped less often.
    """
    trained, surviving, before = 0.0, 1.0, 0
    for rung in (*rungs, epochs):
        trained += surviving * (rung - before)
        surviving, before = surviving / factor, rung
    return trained / epochs
