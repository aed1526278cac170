"""Tests `check` as a whole: set-ups without a fault, and checks that crash."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainable.small_runs import data_set, small_recipe
from trainable.bench import ON_CPU, Bench
from trainable.check import check, check_data, check_network, make_subject
from trainable.checks.finding import CheckName, Finding, Level, counts
from trainable.data import ArrayPart
from trainable.errors import listed
from trainable.recipe import Recipe
from trainable.tasks.kits import load_for

CPU = torch.device("cpu")


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


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
    images = load_for(recipe, Bench(device_name=str(device)))
    findings = list(check_network(make_subject(recipe, images, None, Bench(device_name=str(device)))))
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


# --- checks that crash, and images that show nothing ------------------------------------------------------


def test_findings_are_counted_and_long_lists_are_cut() -> None:
    levels: tuple[Level, ...] = ("error", "warning", "warning", "note", "passed")
    assert counts([Finding("outputs", level, "") for level in levels]) == (1, 2)
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"


OF_DATA: dict[CheckName, str] = {
    "class balance": "tasks.classification.checks.label_checks.check_labels",
    "label shares": "tasks.classification.checks.label_checks.check_label_shares",
    "accuracy": "tasks.classification.checks.label_checks.check_accuracy",
    "pixel values": "check.check_pixels",
    "parts alike": "check.check_parts_alike",
    "normalisation": "check.check_normalisation",
    "duplicates": "check.check_duplicates",
    "groups": "check.check_groups",
}


@pytest.mark.parametrize("name", OF_DATA)
def test_a_check_that_crashes_leaves_the_findings_of_the_others(
    name: CheckName, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*given: object, **named: object) -> None:
        raise ValueError("no images of class 7\nin line 3")

    monkeypatch.setattr(f"trainable.{OF_DATA[name]}", crash)
    subject = make_subject(small_recipe(), data_set(), None, ON_CPU)

    found = by_name(list(check_data(subject)))

    assert found[name].level == "error"
    assert found[name].what == "the check fails: ValueError: no images of class 7"
    assert OF_DATA.keys() <= found.keys()
    assert not [each for each in found.values() if each.what.startswith("not checked: the images show")]


@pytest.mark.parametrize("share", [0, 1], ids=["black", "one image"])
def test_of_equal_images_that_alone_is_found_and_nothing_that_follows(share: int) -> None:
    data = data_set()
    assert isinstance(data.train, ArrayPart)
    assert isinstance(data.validation, ArrayPart)
    image = data.train.images[:1] * np.uint8(share)
    equal = replace(
        data,
        train=replace(data.train, images=np.repeat(image, len(data.train), axis=0)),
        validation=replace(data.validation, images=np.repeat(image, len(data.validation), axis=0)),
    )

    found = check(small_recipe(), data=equal)

    assert [each.check for each in found if each.level == "error"] == ["pixel values"]
    assert not {"duplicates", "contradictions", "learning", "one batch"} & by_name(found).keys()
    assert "nor are duplicates, normalisation, or what can be learnt" in by_name(found)["parts alike"].what
