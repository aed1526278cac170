"""A search over known curves in which the product's samplers and pruning decide."""

from __future__ import annotations

from collections.abc import Mapping

from offline.replay import Search
from offline.search_task import Train
from search.deciding.sampler import Sampler
from search.deciding.scheduler import Scheduler
from search.record.journal import TrialEnd
from spaces.domains import Values


class Replay(Search):
    """A search with a sampler and a scheduler of the product.

    `own`, if any, is the first trial, and is never pruned. `first` is the number of the first trial that the
    sampler draws where there is no own one.
    """

    def __init__(
        self,
        train: Train,
        epochs: int,
        sampler: Sampler,
        scheduler: Scheduler,
        own: Values | None = None,
        first: int = 0,
    ) -> None:
        super().__init__(train, epochs)
        self._sampler = sampler
        self._scheduler = scheduler
        self._own = own
        self._own_number = None if own is None else first
        self._next_number = first
        self._paused: dict[int, int] = {}  # the rung at which each paused trial waits

    def ask(self) -> tuple[int, Values]:
        if (promoted := self._scheduler.promoted(self._paused)) is not None:
            del self._paused[promoted]
            self._sampler.report(promoted, self._trials[promoted].scores)
            return promoted, {}
        number, own = self._next_number, self._own
        self._next_number, self._own = number + 1, None
        return number, self._sampler.ask(number) if own is None else own

    def begin(self, number: int, values: Values) -> None:
        self._sampler.add(number, values)
        self._scheduler.add(number, values)

    def report(self, number: int, epoch: int, score: float) -> bool:
        goes_on = self._scheduler.report(number, epoch, score, exempt=number == self._own_number)
        if goes_on and self._scheduler.rung_at(epoch) is not None:
            self._sampler.report(number, self._trials[number].scores)
        return goes_on

    def end(self, number: int, outcome: TrialEnd, scores: Mapping[int, float]) -> None:
        if outcome == "stopped" and self._scheduler.pauses:
            self._paused[number] = max(scores)
        self._sampler.tell(number, outcome, scores)
        self._scheduler.tell(number, outcome, scores, {})
