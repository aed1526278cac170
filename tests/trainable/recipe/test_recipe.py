"""Tests the Recipe as data: what it accepts, how it refuses, how it changes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainable.errors import RecipeError
from trainable.recipe import Recipe
from trainable.recipe.optimizers import SGD, AdamW
from trainable.recipe.yamlfile import parse_tree, to_yaml


def faults(action: Any) -> dict[str, str]:
    with pytest.raises(RecipeError) as caught:
        action()
    return dict(caught.value.faults)


def test_every_fault_is_reported_at_once_with_its_dotted_path() -> None:
    found = faults(
        lambda: Recipe.from_tree(
            {"optimizer": {"lr": "fast", "momentun": 0.9}, "model": {"depth": 9}, "loop": {"epochs": 0}}
        )
    )
    assert set(found) == {"optimizer.lr", "optimizer.momentun", "model.depth", "loop.epochs"}
    assert "did you mean 'momentum'" in found["optimizer.momentun"]
    assert "'fast'" in found["optimizer.lr"]


def test_the_message_names_its_source() -> None:
    with pytest.raises(RecipeError, match=r"^mine\.yaml: 1 fault\n  loop\.epochs: "):
        Recipe.from_tree({"loop": {"epochs": -1}}, where="mine.yaml")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(number: float) -> None:
    assert "finite" in faults(lambda: Recipe().with_values({"optimizer.lr": number}))["optimizer.lr"]


@pytest.mark.parametrize("value", ["0.1", True, None, [0.1]])
def test_nothing_is_coerced_to_a_number(value: Any) -> None:
    assert "optimizer.lr" in faults(lambda: Recipe().with_values({"optimizer.lr": value}))


def test_an_unknown_kind_lists_the_known_ones() -> None:
    found = faults(lambda: Recipe().with_values({"optimizer.kind": "adamx"}))
    known = "'sgd', 'rmsprop', 'adam', 'adamw', 'adadelta', 'lars', 'lamb', 'adam_then_sgd', 'timm'"
    timms = "what is timm's is written kind: timm, name: NAME"
    assert found == {"optimizer.kind": f"expected one of {known}, got 'adamx'; {timms}"}


def test_an_unknown_section_lists_the_known_ones() -> None:
    assert (
        "known: version, task, data"
        in faults(lambda: Recipe().with_values({"optimzer.lr": 0.1}))["optimzer.lr"]
    )


def test_a_section_without_kind_is_of_the_default_kind() -> None:
    assert Recipe.from_tree({"optimizer": {"lr": 0.5}}).optimizer == SGD(lr=0.5)


def test_switching_a_kind_resets_its_section_before_the_other_values_apply() -> None:
    base = Recipe().with_values({"optimizer.lr": 0.7, "optimizer.weight_decay": 0.5})
    assert base.with_values({"optimizer.lr": 3e-4, "optimizer.kind": "adamw"}).optimizer == AdamW(lr=3e-4)


def test_setting_a_kind_to_what_it_is_resets_nothing() -> None:
    base = Recipe().with_values({"optimizer.lr": 0.7})
    assert base.with_values({"optimizer.kind": "sgd"}) == base


def test_a_value_that_the_chosen_kind_lacks_is_refused() -> None:
    assert "optimizer.momentum" in faults(
        lambda: Recipe().with_values({"optimizer.kind": "adamw", "optimizer.momentum": 0.9})
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"schedule.warmup_epochs": 20.0}, "below loop.epochs 20"),
        ({"loop.micro_batch": 256}, "above loop.batch_size 128"),
    ],
)
def test_fields_that_contradict_one_another_are_refused(values: dict[str, Any], expected: str) -> None:
    (message,) = faults(lambda: Recipe().with_values(values)).values()
    assert expected in message


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"augmentation.crop.scale_min": 0.9, "augmentation.crop.scale_max": 0.5}, "augmentation.crop"),
        ({"augmentation.crop.ratio_min": 1.5}, "augmentation.crop"),
    ],
)
def test_a_crop_whose_bounds_cross_is_refused_at_its_path(values: dict[str, Any], path: str) -> None:
    assert path in faults(lambda: Recipe().with_values({"augmentation.crop.kind": "resized", **values}))


def test_nesterov_without_momentum_is_refused_at_its_path() -> None:
    assert (
        "momentum above 0" in faults(lambda: Recipe().with_values({"optimizer.momentum": 0.0}))["optimizer"]
    )


def test_a_value_is_read_by_its_dotted_path() -> None:
    assert Recipe().get("augmentation.crop.kind") == "pad"
    assert (
        "known: kind, fraction"
        in faults(lambda: Recipe().get("augmentation.crop.size"))["augmentation.crop.size"]
    )


def test_the_digest_tells_recipes_apart_but_not_their_provenance() -> None:
    recipe = Recipe()
    assert recipe.digest() != recipe.with_values({"loop.seed": 1}).digest()
    tree = {**recipe.tree(), "provenance": {"search": "mine", "metrics": {"val_accuracy": 0.9}}}
    assert Recipe.from_tree(tree).digest() == recipe.digest()


def test_a_recipe_cannot_be_changed_in_place() -> None:
    with pytest.raises(Exception, match="frozen"):
        Recipe().loop.epochs = 3  # type: ignore[misc]


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "optimizer.kind": st.sampled_from(["sgd", "adamw"]),
        "optimizer.lr": st.floats(1e-12, 1e12),
        "optimizer.weight_decay": st.floats(0.0, 10.0),
        "schedule.kind": st.sampled_from(["constant", "cosine", "step", "poly", "exp"]),
        "regularisation.label_smoothing": st.floats(0.0, 0.99),
        "regularisation.clipping": st.just({"kind": "none"})
        | st.fixed_dictionaries({"kind": st.just("norm"), "max_norm": st.floats(1e-6, 1e6)}),
        "augmentation.mixing.kind": st.sampled_from(["none", "mixup", "cutmix"]),
        "data.path": st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1),
        "data.flips": st.none() | st.lists(st.sampled_from(["horizontal", "vertical"]), max_size=2),
        "loop.seed": st.integers(0, 2**32 - 1),
    },
)


@pytest.mark.slow("tries many examples")
@given(VALUES)
def test_a_recipe_survives_yaml(values: dict[str, Any]) -> None:
    recipe = Recipe().with_values(values)
    text = to_yaml(recipe.tree(), dict.fromkeys(values, "a reason, with # and : in it"))
    assert Recipe.from_tree(parse_tree(text, "text")) == recipe


@pytest.mark.parametrize("kind", ["torchvision", "timm"])
def test_a_kind_within_a_section_of_another_kind_can_be_set_with_it(kind: str) -> None:
    values = {"model.kind": kind, "model.name": "resnet18", "model.layer_rates.kind": "decayed"}
    recipe = Recipe().with_values({**values, "model.layer_rates.factor": 0.5})
    assert recipe.get("model.layer_rates") == {"kind": "decayed", "factor": 0.5}
    assert recipe == Recipe.from_tree({"model": recipe.tree()["model"]})


def test_a_section_that_a_kind_has_not_is_unknown() -> None:
    found = faults(lambda: Recipe().with_values({"optimizer.kind": "adam", "optimizer.layers.rate": 1.0}))
    assert found["optimizer.layers"].startswith("unknown key")
