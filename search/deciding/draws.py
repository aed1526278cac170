"""Asks a search's sampler in its own numbers, and tells it and the scheduler what became of trials."""

from __future__ import annotations

from collections.abc import Mapping

from search.deciding.sampler import Sampler
from search.deciding.scheduler import Scheduler
from search.record.journal import TrialEnd, TrialEvent
from search.record.record import Record
from spaces.domains import Value


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
