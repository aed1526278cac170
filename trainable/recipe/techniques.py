"""How each technique of a recipe is switched off, so that one can ask what it is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainable.errors import RecipeError
from trainable.recipe.distillation import SECTION
from trainable.recipe.recipe import Recipe

# What a field holds, by dotted path, where its technique is off
OFF: Mapping[str, Any] = {
    "augmentation.crop.kind": "none",
    "augmentation.flip_probability": 0.0,
    "augmentation.policy.kind": "none",
    "augmentation.masking.kind": "none",
    "augmentation.mixing.kind": "none",
    "augmentation.size.kind": "fixed",
    "regularisation.label_smoothing": 0.0,
    "regularisation.class_weights.kind": "none",
    "regularisation.logit_adjustment": 0.0,
    "regularisation.clipping.kind": "none",
    "regularisation.averaging.kind": "none",
    "model.dropout": 0.0,
    "model.stochastic_depth": 0.0,
    "model.initialisation": "default",
    "model.zero_init_residual": False,
    "model.freeze_epochs": 0,
    "model.freeze_norm": False,
    "model.layer_rates.kind": "uniform",
    "optimizer.weight_decay": 0.0,
    "optimizer.nesterov": False,
    "schedule.kind": "constant",
    "schedule.warmup_epochs": 0.0,
    "loop.sampling": "natural",
    "evaluation.flip": False,
    "evaluation.scales": [1.0],
    "evaluation.norm_batches": 0,
    SECTION: None,
}
FLIP = "augmentation.flip_probability"
SCHEDULE, WARMUP = "schedule.kind", "schedule.warmup_epochs"


def techniques_of(recipe: Recipe) -> Iterator[tuple[str, Recipe]]:
    """Yield each technique that a recipe uses, by its field, and the recipe with that technique off.

    Those whose absence makes no valid recipe are left out.
    """
    for path in OFF:
        if _is_on(recipe, path):
            try:
                yield path, without(recipe, [path])
            except RecipeError:
                continue


def without(recipe: Recipe, paths: list[str]) -> Recipe:
    """Return the recipe with these techniques off; a constant rate keeps the warm-up. Raises RecipeError."""
    values = {path: OFF[path] for path in paths}
    if SCHEDULE in values:
        values.setdefault(WARMUP, recipe.schedule.warmup_epochs)
    return recipe.with_values(values)


def _is_on(recipe: Recipe, path: str) -> bool:
    """Return whether a field is there and not off; flips count where the data allow any.

    Null leaves a choice to the network's library, and is not switched.
    """
    try:
        value = recipe.get(path)
    except RecipeError:  # another kind of its section has no such field
        return False
    if path == FLIP and not recipe.data.flips:
        return False
    return value is not None and bool(value != OFF[path])
