"""What a sampler is: it draws the values of the next trial.

A draw is a function of the seed, the trial's number and what the sampler was told of the earlier trials. So a
search that was killed and rebuilt from its journal draws what one that never stopped would have drawn, and so
does a search in another process: same seed and same results, same trials.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from search.record.journal import Outcome
from spaces.domains import Value


class Sampler(ABC):
    """Draws the values of trials; trial numbers count from 0 without gaps."""

    @abstractmethod
    def ask(self, number: int) -> dict[str, Value]:
        """Draw the values of a new trial, by dotted path. Asking changes nothing."""

    @abstractmethod
    def add(self, number: int, values: Mapping[str, Value]) -> None:
        """Take note of a trial that has these values and has not ended: TPE keeps away from it."""

    @abstractmethod
    def tell(self, number: int, outcome: Outcome, scores: Mapping[int, float]) -> None:
        """Take note that a trial has ended; `scores` are its objective by epoch."""
