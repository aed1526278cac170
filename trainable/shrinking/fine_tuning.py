"""Trains a pruned network for a few epochs more, and scores it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from trainable.bench import Bench
from trainable.data import DataSet, Split
from trainable.errors import RunError
from trainable.recipe import Recipe
from trainable.recipe.distillation import MODEL, SECTION, TEACHER
from trainable.recipe.recipe import LEARNING_RATES
from trainable.run import make_run
from trainable.stages import counting, stage
from trainable.training.evaluate import Scores
from trainable.training.run import PREFIXES

# The fine-tuning has this share of the recipe's epochs: Li et al., arXiv 1608.08710, section 4, take up to a
# quarter of the original ones.
EPOCHS_SHARE = 0.2
# Its rate begins at this share of the recipe's. Small rates are usual, and large ones recover more (Le and
# Hua, arXiv 2105.03193; Renda et al., arXiv 2003.02389): docs/decisions/0045 has a tenth, 0.3 and all of it
# measured.
LR_FACTOR = 1.0


@dataclass(frozen=True, eq=False)
class Tuned:
    """A network after training: its seed, its weights by name on the CPU, and its scores by part."""

    seed: int
    weights: Mapping[str, Tensor]
    scores: Mapping[Split, Scores]


def fine_tuning(recipe: Recipe, *, epochs: int | None = None, lr_factor: float = LR_FACTOR) -> Recipe:
    """Return the recipe of a fine-tuning: that of the training, with fewer epochs, a rate that falls to zero
    as a cosine, no warm-up, and all layers trained from the first step.

    Raises RecipeError for values that no recipe may have.
    """
    asked = max(1, round(EPOCHS_SHARE * recipe.loop.epochs)) if epochs is None else epochs
    optimizer = recipe.optimizer.model_dump()
    rates = {path: optimizer.get(path.partition(".")[2]) for path in LEARNING_RATES}
    return recipe.with_values(
        {
            **{path: lr_factor * rate for path, rate in rates.items() if rate is not None},
            "schedule": {"kind": "cosine"},
            "model.freeze_epochs": 0,
            "model.frozen_views": None,
            "loop.epochs": asked,
        }
    ).model_copy(update={"provenance": None})


def taught_by(recipe: Recipe, teacher: Path) -> Recipe:
    """Return the recipe of a fine-tuning that learns from the network in a folder, too.

    A recipe that has a teacher gets this one in its place; how it learns stays as it is. Raises RecipeError.
    """
    if recipe.distillation is None:
        return recipe.with_values({TEACHER: str(teacher)})
    return recipe.with_values({TEACHER: str(teacher), f"{SECTION}.{MODEL}": None})


def seeds_of(recipe: Recipe, count: int) -> list[int]:
    """Return seeds for fine-tunings, none of them that of the training."""
    return [(recipe.loop.seed + number) % 2**32 for number in range(1, count + 1)]


@dataclass(frozen=True, eq=False)
class SeededRuns:
    """The runs of recipes on one data set, one for each seed, scored on some parts."""

    data: DataSet
    seeds: Sequence[int]
    parts: Sequence[Split]
    metric: str  # whose scores are told, such as `val_accuracy`
    bench: Bench

    def of(self, recipe: Recipe, make: Callable[[int], nn.Module], title: str) -> Iterator[Tuned]:
        """Train what `make` returns for each seed by a recipe, and yield it with its scores.

        `bench.say` gets a line for each. Raises RunError, which names the seed, where a run diverges or
        crashes.
        """
        name = self.metric.removeprefix("val_")
        for seed in self.seeds:
            seeded = recipe.with_values({"loop.seed": seed})
            with closing(make_run(seeded, data=self.data, model=make(seed), bench=self.bench)) as run:
                total = seeded.loop.epochs
                with stage(f"training: {title}, seed {seed}"), counting("epoch", total) as epochs:
                    while not run.finished:
                        run.step()
                        epochs.done = run.epoch
                if run.diverged:
                    raise RunError(f"{title}, seed {seed}: diverged; a lower --lr-factor may help")
                scores = {part: run.score(part, answers=True) for part in self.parts}
                weights = {key: each.detach().to("cpu", copy=True) for key, each in run.weights().items()}
            words = ", ".join(
                f"{PREFIXES[part]}_{name} {each.by_name()[name]:.4f}" for part, each in scores.items()
            )
            self.bench.say(f"{title}, seed {seed}: {words}")
            yield Tuned(seed, weights, scores)


def scores_of(
    network: nn.Module, recipe: Recipe, data: DataSet, parts: Sequence[Split], bench: Bench
) -> dict[Split, Scores]:
    """Return the scores of a network as it is on some parts, in the number format of a recipe."""
    with closing(make_run(recipe, data=data, model=copy.deepcopy(network), bench=bench)) as run:
        return {part: run.score(part, answers=True) for part in parts}
