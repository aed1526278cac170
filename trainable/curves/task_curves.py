"""What the reading of learning curves asks of a task; and what is proposed after a run: one field of its
recipe, and another value of it."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainable.curves.levels import Levels
from trainable.recipe import Recipe
from trainable.training.metrics import EpochResult


class TaskCurves(abc.ABC):
    """What the reading of curves asks of what is learnt: an implementation for each kind of task.

    `trainable.diagnosis.curves_of` says which one a recipe has.
    """

    @abc.abstractmethod
    def levels(self, history: Sequence[EpochResult]) -> Levels:
        """Return the levels of a run that did not end diverged."""

    @abc.abstractmethod
    def mistakes(self, metric: str, metrics: Mapping[str, float], images: int) -> int | None:
        """Return how many of so many images the answers behind a metric have wrong, from all metrics of an
        epoch; None for a metric, or answers, that are not counted as right or wrong by image."""

    @abc.abstractmethod
    def noise(self, metric: str, figures: Mapping[str, float]) -> float | None:
        """Return by how much a score swings by luck, of the run whose diagnosis has these figures; None for a
        metric of which they have none."""

    @abc.abstractmethod
    def guessing(self, classes: int) -> float:
        """Return at most what a network loses that gives every class the same probability."""

    @abc.abstractmethod
    def better_fit(self, recipe: Recipe, *, small_missed: bool) -> Iterator[Remedy]:
        """Yield what lets a network know more of its training images, beside what every recipe has;
        `small_missed` is true if small classes are known less than large ones."""

    @abc.abstractmethod
    def harder_images(self, recipe: Recipe) -> Iterator[Remedy]:
        """Yield stronger augmentation, and targets that are harder to know by heart."""


@dataclass(frozen=True)
class Remedy:
    """One field to change: this recipe accepts the value `to` there, as `--set PATH=TO` would set it."""

    path: str
    now: Any
    to: Any
    why: str
    source: str

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.now)} -> {_shown(self.to)}: {self.why} ({self.source})"

    def tree(self) -> dict[str, Any]:
        return asdict(self)


def change(recipe: Recipe, path: str, to: Any, why: str, source: str) -> Remedy:
    """Return the remedy that replaces the value at a path of the recipe."""
    return Remedy(path, recipe.get(path), to, why, source)


def rounded(value: float) -> float:
    """Round to two significant digits: a proposal is no more exact than that."""
    return float(f"{value:.2g}")


def _shown(value: Any) -> str:
    """Return a value as it is written after `--set PATH=`."""
    if value is None:
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)
