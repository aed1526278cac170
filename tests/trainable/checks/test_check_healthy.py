"""Sound set-ups, each checked as a whole: no error, no warning, and done in a processor's minute."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from trainable.checks.check import check
from trainable.recipe import Recipe

SECONDS = 60.0
TINY = {"data.path": "digits", "data.train_limit": 600, "data.image_size": 32}


def assert_sound(recipe: Recipe) -> None:
    began = time.process_time()
    findings = check(recipe.with_values({"precision.kind": "fp32"}))
    seconds = time.process_time() - began
    assert [each for each in findings if each.level in ("error", "warning")] == []
    assert seconds < SECONDS


@pytest.mark.parametrize(
    "values",
    [
        {"data.path": "digits"},
        {**TINY, "model.kind": "torchvision", "model.name": "mobilenet_v3_small"},
        {**TINY, "model.kind": "timm", "model.name": "resnet10t", "optimizer.kind": "adamw"},
    ],
    ids=["digits", "torchvision", "timm"],
)
def test_digits_with_each_kind_of_network_raise_no_alarm(values: dict[str, Any]) -> None:
    assert_sound(Recipe().with_values(values))


@pytest.mark.data
def test_fashion_mnist_raises_no_alarm(real_images: Path) -> None:
    assert_sound(Recipe().with_values({"data.path": str(real_images / "fashion-mnist")}))


@pytest.mark.data
@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "from files"])
def test_photographs_of_hands_raise_no_alarm(real_images: Path, in_memory: bool) -> None:
    path = str(real_images / "sign-language-digits" / "Dataset")
    assert_sound(
        Recipe().with_values(
            {"data.path": path, "data.image_size": 32, "data.in_memory": in_memory, "loop.workers": 1}
        )
    )
