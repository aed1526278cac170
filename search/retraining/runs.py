"""Trains recipes again, each in a fresh process."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from search.retraining.processes import in_processes
from spaces.domains import counted
from trainable.recipe import Recipe


@dataclass(frozen=True)
class Fresh:
    """Holds what one recipe came to: what `tunebook train --json` prints, or why it came to nothing."""

    recipe: Recipe
    result: Mapping[str, Any]
    fault: str | None = None

    @property
    def seed(self) -> int:
        return self.recipe.loop.seed

    def score(self, name: str) -> float | None:
        """Returns a score by its name, such as `val_accuracy`; None where the run came to nothing."""
        return None if self.fault is not None else self.result.get(name)


def effort(recipe: Recipe, runs: int) -> str:
    """Returns in words how much so many runs of a recipe train."""
    return f"{counted(runs, 'run')} of {counted(recipe.loop.epochs, 'epoch')}"


def train_all(recipes: Sequence[Recipe], *, test: bool = False, download: bool = False) -> Generator[Fresh]:
    """Trains recipes and yields what each came to, in their order; `test` asks for the test scores too."""
    with closing(in_processes(_trained, recipes, test=test, download=download)) as found:
        for done in found:
            result, diverged = done.result or ({}, False)
            yield Fresh(done.recipe, result, "the run diverged" if diverged else done.fault)


def _trained(recipe: Recipe, test: bool, download: bool) -> tuple[dict[str, Any], bool]:
    from trainable.train import train

    outcome = train(recipe, test=test, download=download)
    return outcome.tree(), outcome.diverged
