"""Tests which networks a recipe can name for each task, and what it says of them."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from trainable.errors import RecipeError
from trainable.recipe import Recipe
from trainable.recipe import models as specs
from trainable.recipe.tasks import Classification, Segmentation
from trainable.recipe.yamlfile import parse_tree, to_yaml

DENSE = {"task.kind": "segmentation"}
SMP = {**DENSE, "model.kind": "smp", "model.encoder": "resnet18"}


def test_every_kind_of_network_is_for_one_of_the_tasks() -> None:
    kinds = [spec.model_fields["kind"].default for spec in get_args(get_args(specs.Model)[0])]
    assert sorted({*Classification.networks, *Segmentation.networks}) == sorted(kinds)
    assert set(Classification.networks) & set(Segmentation.networks) == {"torchvision", "own"}


def test_the_digest_of_the_default_recipe_is_what_it_was() -> None:
    assert Recipe().digest() == "586201c81a59"


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "resnet_small"),
        ({**DENSE, "model.kind": "unet_small"}, "unet_small"),
        ({"model.kind": "timm", "model.name": "resnet18"}, "resnet18"),
        ({**SMP, "model.name": "fpn"}, "fpn-resnet18"),
        (SMP, "unet-resnet18"),
    ],
)
def test_a_network_has_one_name(values: dict[str, Any], name: str) -> None:
    assert specs.network_name(Recipe().with_values(values).model) == name


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"model.kind": "smp"}, r"model\.encoder: is required"),
        ({**SMP, "model.name": "pspnet"}, r"model\.name: .*'unet', 'unetplusplus', 'fpn'"),
        ({**SMP, "model.encoder": "tu-resnet18"}, r"expected a bare name of timm, such as resnet18, got"),
        ({**SMP, "model.encoder": "hf-hub:me/mine"}, r"model\.encoder: expected a bare name"),
        ({**SMP, "model.output_stride": 8}, "output_stride: unet has none, got 8: leave it out, or name"),
        ({**SMP, "model.name": "deeplabv3plus", "model.output_stride": 32}, r"model\.output_stride: .*8"),
        ({"model.layer_rates": {"kind": "backbone", "factor": 0.0}}, r"model\.layer_rates\.factor: "),
    ],
)
def test_what_no_network_is_is_refused_where_it_is_written(values: dict[str, Any], fault: str) -> None:
    with pytest.raises(RecipeError, match=fault):
        Recipe().with_values(values)


def test_a_recipe_with_a_decoder_survives_yaml() -> None:
    values = {**SMP, "model.name": "deeplabv3plus", "model.output_stride": 8}
    recipe = Recipe().with_values({**values, "model.layer_rates.kind": "backbone"})
    assert Recipe.from_tree(parse_tree(to_yaml(recipe.tree(), {}), "text")) == recipe
    assert recipe.get("model.layer_rates.factor") == 0.1


NO_ARGUMENTS = (
    "eps=exec(1) or 1e-8, foreach",
    "a.b",
    "class",
    "__class__",
    "kind",
    "ε",
    "",
    "a\n",
    "1a",
    "a" * 101,
)


@pytest.mark.parametrize("name", NO_ARGUMENTS, ids=ascii)
@pytest.mark.parametrize(
    ("field", "section"),
    [
        ("optimizer.options", {"optimizer": {"kind": "timm", "options": {}}}),
        ("model.arguments", {"model": {"kind": "own", "name": "net", "arguments": {}}}),
    ],
)
def test_a_key_that_becomes_the_name_of_an_argument_is_one(
    name: str, field: str, section: dict[str, Any]
) -> None:
    (top, inner), (_, last) = next(iter(section.items())), field.split(".")
    with pytest.raises(RecipeError) as caught:
        Recipe.from_tree({top: {**inner, last: {name: 1.0}}})
    (fault,) = caught.value.faults
    assert fault.path.startswith(field)
    assert "[key]" not in fault.path
    assert "the name of an argument" in fault.message or "a section's kind" in fault.message
