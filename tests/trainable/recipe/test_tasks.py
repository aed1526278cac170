"""Tests what a segmentation may say of its masks."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainable.errors import RecipeError
from trainable.recipe import Recipe
from trainable.recipe.tasks import Masks


@pytest.mark.parametrize("ignored", [255, None])
def test_binary_masks_ignore_no_value(ignored: int | None) -> None:
    assert Masks(values="binary", ignore_index=ignored).values == "binary"


def test_a_value_that_binary_masks_are_to_ignore_is_refused() -> None:
    with pytest.raises(ValidationError, match="ignore_index 2 is for values: index; with values: binary all"):
        Masks(values="binary", ignore_index=2)


MODELS = (
    {"kind": "torchvision", "name": "deeplabv3_resnet50"},
    {"kind": "smp", "name": "deeplabv3plus", "encoder": "resnet18"},
)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("path", ["loop.batch_size", "loop.micro_batch"])
def test_a_network_that_normalises_one_pixel_an_image_is_refused_single_images(
    model: dict[str, str], path: str
) -> None:
    recipe = Recipe.from_tree({"task": {"kind": "segmentation"}, "model": model})
    with pytest.raises(RecipeError, match=rf"{path} 1: {model['name']} has a BatchNorm .* 2 or more"):
        recipe.with_values({path: 1})
    assert recipe.with_values({path: 2}).model.kind == model["kind"]
