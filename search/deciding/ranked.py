"""Ranks values as they arrive, so that nobody sorts them again for each new one."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice

from trainable.recipe.metrics import Mode
from trainable.training.metrics import sign_of


class Ranked:
    """Holds the values of trials in order, the best first, and of equal ones the earliest.

    A place is found by bisection: among 10,000 trials that takes as long as among 100, within microseconds.
    """

    def __init__(self, direction: Mode) -> None:
        self._sign = -sign_of(direction)
        self._order: list[tuple[float, int, int]] = []
        """Of each trial its value, lower for better, how many came before it, and its number."""
        self._keys: dict[int, tuple[float, int, int]] = {}

    def __len__(self) -> int:
        return len(self._order)

    def add(self, trial: int, value: float) -> None:
        """Rank a trial that is not ranked yet by its value, which is finite."""
        self._keys[trial] = key = self._sign * value, len(self._order), trial
        insort(self._order, key)

    def better(self, value: float) -> int:
        """Returns how many values are strictly better than this one."""
        return bisect_left(self._order, (self._sign * value, -1, -1))

    def before(self, trial: int) -> int:
        """Returns how many trials come before a ranked one, those of equal value that were earlier too."""
        return bisect_left(self._order, self._keys[trial])

    def trials(self, first: int = 0, end: int | None = None) -> Iterator[int]:
        """Yields the trials in order, from the place `first` on and before `end`, counted from 0."""
        return (trial for _, _, trial in islice(self._order, first, end))
