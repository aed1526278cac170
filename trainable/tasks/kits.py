"""Which kit answers for a recipe's task, and what every run asks it for."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from trainable.bench import HERE, Bench
from trainable.data import DataSet
from trainable.data.loading import Loader, check_form
from trainable.recipe import Recipe
from trainable.recipe.tasks import AnyTask, Classification, Segmentation
from trainable.tasks.classification.kit import ClassificationKit
from trainable.tasks.kit import Kit
from trainable.tasks.segmentation.kit import SegmentationKit
from trainable.training.pixels import as_weights_know


def kit_of(task: AnyTask) -> Kit:
    match task:
        case Classification():
            return ClassificationKit()
        case Segmentation():
            return SegmentationKit(task)
        case _:
            assert_never(task)


def load_for(recipe: Recipe, bench: Bench = HERE, *, own_model: bool = False) -> DataSet:
    """Load the images of a recipe for a run on a bench, made square as its evaluation says, by the filter
    and at the size of its weights where it leaves these open. Raises DataError, ModelError."""
    asked = as_weights_know(recipe, bench, own_model=own_model)
    data = kit_of(asked.task).load(asked, bench)
    return replace(data, crops=recipe.augmentation.crop.kind == "resized")


def make_loader(data: DataSet, recipe: Recipe, bench: Bench) -> Loader:
    """Return the loader of a data set for a recipe, on a bench.

    Images that are decoded already, in memory or in this machine's cache, are taken from there; others are
    read from their files, and are the same. Raises DataError if the set was loaded for another form.
    """
    if not 0.0 < bench.gpu_share <= 1.0:
        raise ValueError(f"gpu_share must be above 0 and at most 1, got {bench.gpu_share}")
    check_form(data, recipe)
    return kit_of(recipe.task).loader(data, recipe, bench)
