"""Defines what a sampler is: it draws the values of the next trial.

A draw is a function of the seed, the trial's number and what the sampler knows of the earlier trials. So a
search that was killed and rebuilt from its journal draws what one that never stopped would have drawn. So
does a search in another process: the same seed and the same results give the same trials.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from search.record.journal import TrialEnd
from spaces.domains import Value


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
