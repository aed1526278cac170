"""Asks a search's sampler in the sampler's own numbers, and tells it what became of its trials."""

from __future__ import annotations

from collections.abc import Mapping

from search.deciding.sampler import Sampler
from search.record.journal import Outcome, TrialEvent
from search.record.trials import Record
from spaces.domains import Value


class Draws:
    """Joins a sampler with the record of a search; `metric` is the objective.

    A sampler counts the trials that it knows, without gaps: no repeats, and nothing outside the space.
    """

    def __init__(self, sampler: Sampler, record: Record, metric: str) -> None:
        self._sampler = sampler
        self._record = record
        self._metric = metric
        self._numbers: dict[int, int] = {}
        """The sampler's number of each trial that it knows."""

    def draw(self) -> Mapping[str, Value]:
        """Returns the values of a new trial."""
        return self._sampler.ask(len(self._numbers))

    def add(self, event: TrialEvent) -> None:
        """Let the sampler know of a new trial, unless a person asked for it outside the space."""
        if event.first is None or not event.first.outside:
            self._numbers[event.trial] = len(self._numbers)
            self._sampler.add(self._numbers[event.trial], event.values)

    def tell(self, trial: int, outcome: Outcome) -> None:
        """Tell the sampler how a trial ended or paused, by the record, if it knows the trial."""
        if (known := self._numbers.get(trial)) is not None:
            found, excesses = self._record.trials[trial], self._record.excesses(trial)
            scores = found.scores(self._metric)
            self._sampler.tell(known, outcome, scores, excesses, found.epoch_seconds)
