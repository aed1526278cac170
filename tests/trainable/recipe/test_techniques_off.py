"""Tests which techniques a recipe uses, and that each can be switched off by itself."""

from typing import Any

import pytest

from trainable.recipe import Recipe
from trainable.recipe.techniques import OFF, techniques_of, without
from trainable.recipe.trees import value_at

EVERYTHING = Recipe().with_values(
    {
        "data.flips": ["horizontal"],
        "augmentation.policy.kind": "randaugment",
        "augmentation.masking.kind": "erasing",
        "augmentation.mixing.kind": "mixup",
        "augmentation.size.kind": "progressive",
        "regularisation.label_smoothing": 0.1,
        "regularisation.class_weights.kind": "inverse",
        "regularisation.logit_adjustment": 1.0,
        "regularisation.clipping.kind": "norm",
        "regularisation.averaging.kind": "ema",
        "model.dropout": 0.1,
        "model.stochastic_depth": 0.1,
        "model.initialisation": "kaiming",
        "model.zero_init_residual": True,
        "model.freeze_epochs": 1,
        "model.freeze_norm": True,
        "model.layer_rates.kind": "decayed",
        "schedule.warmup_epochs": 1.0,
        "loop.sampling": "sqrt",
        "evaluation.flip": True,
        "evaluation.scales": [1.0, 1.25],
        "distillation.teacher": "teacher",
    }
)


def value_in(recipe: Recipe, path: str) -> Any:
    """Return a field's value; None for a section that the recipe does not have."""
    return value_at({"distillation": None, **recipe.tree()}, path)


@pytest.mark.slow("reads many recipes")
def test_a_recipe_with_everything_has_each_technique_and_each_can_go() -> None:
    found = dict(techniques_of(EVERYTHING))
    assert list(found) == list(OFF)
    for path, recipe in found.items():
        assert value_in(recipe, path) == OFF[path]
        assert path not in dict(techniques_of(recipe))


def test_without_its_techniques_a_recipe_uses_none() -> None:
    assert dict(techniques_of(without(EVERYTHING, list(OFF)))) == {}


def test_a_constant_rate_keeps_the_warm_up() -> None:
    recipe = without(EVERYTHING, ["schedule.kind"])
    assert (recipe.schedule.kind, recipe.schedule.warmup_epochs) == ("constant", 1.0)


@pytest.mark.parametrize(
    "path",
    ["augmentation.flip_probability", "model.dropout", "optimizer.nesterov", "model.zero_init_residual"],
)
def test_what_the_data_or_the_optimizer_do_not_have_is_no_technique(path: str) -> None:
    recipe = Recipe().with_values({"data.flips": [], "optimizer.kind": "adamw"})
    assert path not in dict(techniques_of(recipe))
