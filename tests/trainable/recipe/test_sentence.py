"""What a recipe trains, in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from trainable.recipe import Recipe
from trainable.recipe.optimizers import by_own_name

SMALL = {"kind": "resnet_small"}
LITE = {"kind": "timm", "name": "tf_efficientnet_lite0", "weights": "default"}
MUON = {"optimizer.kind": "timm", "optimizer.name": "muon", "optimizer.lr": 0.1}
SGD = "SGD at 0.1 a batch of 256, cosine"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, f"resnet_small (depth 8, width 16), from scratch, {SGD}"),
        (
            {"model": LITE, "data.image_size": 64, **MUON, "schedule.kind": "onecycle"},
            "timm tf_efficientnet_lite0, pretrained, 64 px, Muon at 0.1 a batch of 256, one cycle",
        ),
        (
            {"model": {"kind": "torchvision", "name": "resnet18", "weights": "IMAGENET1K_V1"}},
            f"torchvision resnet18, pretrained (IMAGENET1K_V1), {SGD}",
        ),
        (
            {"model": {**SMALL, "weights": "flowers-model/model.safetensors", "freeze_epochs": 3}},
            f"resnet_small (depth 8, width 16), pretrained (flowers-model), {SGD}, "
            "body frozen for 3 of 20 epochs",
        ),
        (
            {"model": {**LITE, "weights": "/a/lite.pth", "freeze_epochs": 20}},
            f"timm tf_efficientnet_lite0, pretrained (lite.pth), {SGD}, body frozen",
        ),
        (
            {"model": {"kind": "own", "name": "build_model", "arguments": {"depth": 4}}},
            f"your own build_model (depth 4), from scratch, {SGD}",
        ),
        (
            {"model": {"kind": "own", "name": "Net"}, "distillation.teacher": "searches/big#3"},
            f"your own Net, from scratch, {SGD}, taught by big#3",
        ),
        (
            {"task.kind": "segmentation", "model": {"kind": "smp", "encoder": "resnet18"}},
            f"smp unet over resnet18, from scratch, {SGD}",
        ),
        (
            {"task.kind": "segmentation", "model": {"kind": "unet_small"}},
            f"unet_small (levels 3, width 16), from scratch, {SGD}",
        ),
    ],
)
def test_a_sentence_says_what_a_recipe_trains(values: dict[str, Any], sentence: str) -> None:
    assert Recipe.from_tree(_nested(values)).sentence == sentence


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        inner = tree
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return tree


@pytest.mark.parametrize("kind", ["sgd", "rmsprop", "adam", "adamw", "adadelta", "lars", "lamb", "timm"])
def test_an_optimizer_is_called_by_its_own_name(kind: str) -> None:
    optimizer = Recipe().with_values({"optimizer.kind": kind}).optimizer
    assert optimizer.title.lower() == ("nadamw" if kind == "timm" else kind)


def test_the_size_of_images_is_that_of_the_data_where_a_recipe_leaves_it_to_them() -> None:
    assert ", 48 px, " in Recipe().sentence_at(48)


@pytest.mark.parametrize(
    ("values", "named", "shown"),
    [
        (
            {"optimizer.kind": "sgd", "optimizer.lr": 0.1},
            None,
            {"optimizer.kind": "sgd", "optimizer.lr": 0.1},
        ),
        (MUON, None, {"optimizer.kind": "muon", "optimizer.lr": 0.1}),
        ({"optimizer.kind": "timm"}, "lion", {"optimizer.kind": "lion"}),
        ({"optimizer.name": "adan"}, None, {"optimizer.kind": "adan"}),
        ({"optimizer.lr": 0.1}, "muon", {"optimizer.lr": 0.1}),
        ({"optimizer.kind": "timm"}, None, {"optimizer.kind": "timm"}),
        ({}, "muon", {}),
    ],
)
def test_an_optimizer_of_timms_stands_among_values_by_its_own_name(
    values: dict[str, Any], named: str | None, shown: dict[str, Any]
) -> None:
    assert by_own_name(values, named) == shown
