"""Describes trials that train the recipe of another trial again, outside the search."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainable.recipe import Recipe
from trainable.recipe.base import Spec

# a finalist is trained with other seeds; a trial that was stopped is trained to its end, with its own
RepeatPurpose = Literal["finalist", "pruning"]
SEEDS = 2**32  # the number of seeds: after the last one comes 0


class Repeat(Spec):
    """Which trial is trained again, why, and with which seeds.

    The sampler and the scheduler learn nothing from it, and it is never stopped early.
    """

    of: Annotated[int, Field(ge=0)]  # the number of the other trial
    purpose: RepeatPurpose
    seed: int | None = None  # the run's `loop.seed`; None leaves the recipe's
    split: int | None = None  # the run's `data.validation_seed`; None leaves the recipe's

    def __str__(self) -> str:
        if self.purpose == "pruning":
            return f"trial {self.of} again, to its end"
        split = "" if self.split is None else f" and split {self.split}"
        return f"trial {self.of} again, with seed {self.seed}{split}"

    def recipe(self, original: Recipe) -> Recipe:
        """Return the recipe of this run."""
        seeds = {"loop.seed": self.seed, "data.validation_seed": self.split}
        return original.with_values({path: seed for path, seed in seeds.items() if seed is not None})
