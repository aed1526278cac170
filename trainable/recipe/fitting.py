"""Says which fields of a recipe do not go with what it learns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainable.recipe import augmentations, metrics, models
from trainable.recipe.distillation import FeaturesTaught
from trainable.recipe.tasks import Segmentation

if TYPE_CHECKING:
    from trainable.recipe.recipe import Recipe

NO_MASKS = ("digits", "idx", "datasets")
"""Data of these formats have no masks."""


def misfits(recipe: Recipe) -> Iterator[str]:
    """Yields what is wrong with fields that the recipe's task, or what its teacher says, cannot have: which
    one, what was expected, and what was got."""
    dense = isinstance(recipe.task, Segmentation)
    found = (
        ("model.kind", recipe.model.kind, models.kinds_for(dense)),
        ("augmentation.mixing.kind", recipe.augmentation.mixing.kind, augmentations.mixings_for(dense)),
        ("augmentation.crop.kind", recipe.augmentation.crop.kind, augmentations.crops_for(dense)),
        *(("evaluation.metrics", each.kind, metrics.kinds_for(dense)) for each in recipe.evaluation.metrics),
    )
    for path, kind, known in found:
        if kind not in known:
            yield f"{path} {kind} does not go with task.kind {recipe.task.kind}: expected {', '.join(known)}"
    if dense:
        yield from _of_masks(recipe)
    if isinstance(recipe.distillation, FeaturesTaught) and recipe.loop.compile:
        yield "loop.compile: distillation.kind features reads what a compiled network hides; set it to false"


def _of_masks(recipe: Recipe) -> Iterator[str]:
    if recipe.data.format in NO_MASKS:
        yield f"data.format {recipe.data.format}: these data have no masks, which a segmentation needs"
    if recipe.evaluation.resize.kind != "stretch":
        yield "evaluation.resize: images with masks keep their size; leave it out"
    if recipe.model.frozen_views is not None:
        yield "model.frozen_views: features of pixels are not kept; leave it out"
