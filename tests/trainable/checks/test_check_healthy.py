"""Tests sound set-ups, each checked as a whole: no error, no warning, and done in a processor's minute."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from trainable.checks.check import check, check_network
from trainable.checks.finding import Finding
from trainable.checks.subject import make_subject
from trainable.recipe import Recipe
from trainable.tasks.kits import load_for

SECONDS = 60.0
SMALL: dict[str, Any] = {"precision.kind": "fp32", "loop.batch_size": 32}
TINY = {**SMALL, "data.path": "digits", "data.train_limit": 600, "data.image_size": 32}


def assert_sound(values: dict[str, Any]) -> None:
    began = time.process_time()
    findings = check(Recipe().with_values({**SMALL, **values}))
    seconds = time.process_time() - began
    assert alarms(findings) == []
    assert seconds < SECONDS


def alarms(findings: Iterable[Finding]) -> list[Finding]:
    return [each for each in findings if each.level in ("error", "warning")]


@pytest.mark.slow("trains for its checks")
def test_digits_raise_no_alarm() -> None:
    assert_sound({"data.path": "digits"})


@pytest.mark.slow("trains for its checks")
@pytest.mark.parametrize(
    "network",
    [
        {"model.kind": "torchvision", "model.name": "mobilenet_v3_small"},
        {"model.kind": "timm", "model.name": "resnet10t", "optimizer.kind": "adamw"},
    ],
    ids=["torchvision", "timm"],
)
def test_networks_of_libraries_raise_no_alarm(network: dict[str, Any]) -> None:
    """What is said of the images alone is the same as with the project's own network."""
    recipe, device = Recipe().with_values({**TINY, **network}), torch.device("cpu")
    images = load_for(recipe, device, download=False)
    findings = list(check_network(make_subject(recipe, images, None, device, download=False)))
    assert alarms(findings) == []
    assert {each.check for each in findings} >= {"first steps", "one batch", "shuffled labels"}


@pytest.mark.slow("trains for its checks")
@pytest.mark.data
def test_fashion_mnist_raises_no_alarm(real_images: Path) -> None:
    assert_sound({"data.path": str(real_images / "fashion-mnist"), "data.train_limit": 10_000})


@pytest.mark.slow("trains for its checks")
@pytest.mark.data
def test_photographs_of_hands_raise_no_alarm(real_images: Path) -> None:
    """The images are in files, and the same in memory (tests/trainable/data/test_memory_and_files.py)."""
    path = str(real_images / "sign-language-digits" / "Dataset")
    assert_sound({"data.path": path, "data.image_size": 32, "data.in_memory": False, "loop.workers": 1})
