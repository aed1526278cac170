"""Tests that images which occur twice are found, whether decoded or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.trainable.small_images import write_noise_jpeg
from tests.trainable.small_runs import data_set
from trainable.checks.duplicates import Fingerprints, check_duplicates
from trainable.checks.finding import Finding
from trainable.checks.images import check_pixels
from trainable.data import ArrayPart, DataSet, FilePart
from trainable.data.assembly import load
from trainable.recipe.data import Data
from trainable.tasks.classification.checks.label_checks import LabelChecks


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def folder(root: Path, each: int = 12) -> DataSet:
    """Write noise photographs of two classes to files, which are not held in memory."""
    for label, name in enumerate(("cat", "dog")):
        for number in range(each):
            write_noise_jpeg(root / name / f"{number}.jpg", seed=100 * label + number, size=32)
    return load(Data(path=str(root), in_memory=False, image_size=16))


def leaking(count: int, validation: int = 200) -> DataSet:
    data = data_set(240, validation)
    assert isinstance(data.validation, ArrayPart)
    assert isinstance(data.train, ArrayPart)
    images, labels = data.validation.images.copy(), data.validation.labels.copy()
    images[:count], labels[:count] = data.train.images[:count], data.train.labels[:count]
    return replace(data, validation=ArrayPart(images, labels))


@pytest.mark.parametrize(("count", "level"), [(0, "passed"), (1, "note"), (4, "warning"), (20, "error")])
def test_how_bad_a_leak_is_goes_by_what_it_adds_to_the_score(count: int, level: str) -> None:
    found = by_name(list(check_duplicates(Fingerprints(leaking(count)), LabelChecks())))["duplicates"]
    assert found.level == level
    assert found.copies_in == ("validation" if count else None)
    if count:
        assert f"{count} validation images ({count / 200:.1%}) are also in train: validation 0 = train 0" in (
            found.what
        )


@pytest.mark.parametrize("colour", [0, 255, (200, 0, 0)])
@pytest.mark.parametrize("in_memory", [True, False])
def test_what_follows_from_images_of_one_colour_is_one_finding(
    tmp_path: Path, colour: Any, in_memory: bool
) -> None:
    luck = np.random.default_rng(0)
    for number in range(60):
        pixels = luck.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        pixels[:] = colour if number % 10 < 3 else pixels
        path = tmp_path / ("train", "val")[number % 3 == 0] / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    data = load(Data(path=str(tmp_path), in_memory=in_memory))
    compared = Fingerprints(data)
    found = [*check_pixels(data, compared.sample), *check_duplicates(compared, LabelChecks())]
    (fault,) = (each for each in found if each.level != "passed")
    assert (fault.check, fault.level) == ("pixel values", "warning")
    assert "are of one colour" in fault.what
    assert sum(map(len, compared.without_blank.values())) == 60


def test_above_fifty_thousand_images_a_sample_is_compared_and_the_finding_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainable.checks.duplicates.MOST", 100)
    found = by_name(list(check_duplicates(Fingerprints(leaking(20)), LabelChecks())))["duplicates"]
    assert "a sample of 100 of 460 compared" in found.what
    assert (
        "all 460 compared"
        in by_name(list(check_duplicates(Fingerprints(leaking(20), full=True), LabelChecks())))[
            "duplicates"
        ].what
    )


@pytest.mark.parametrize("decoded", [2_000, 0])
def test_equal_files_in_two_parts_are_found_whether_decoded_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoded: int
) -> None:
    monkeypatch.setattr("trainable.checks.duplicates.DECODED", decoded)
    data = folder(tmp_path)
    assert by_name(list(check_duplicates(Fingerprints(data), LabelChecks())))["duplicates"].level == "passed"
    assert isinstance(data.train, FilePart)
    assert isinstance(data.validation, FilePart)
    source, indices = data.train.selection
    original = tmp_path / source.name(int(indices[0]))
    copy = tmp_path / source.name(int(data.validation.selection.indices[0]))
    copy.write_bytes(original.read_bytes())
    found = by_name(list(check_duplicates(Fingerprints(data), LabelChecks())))["duplicates"]
    assert source.name(int(indices[0])) in found.what


def test_files_that_only_end_alike_are_not_taken_for_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainable.checks.duplicates.DECODED", 0)
    monkeypatch.setattr("trainable.checks.duplicates.TAIL_BYTES", 2)  # every JPEG ends in FF D9
    data = folder(tmp_path)
    assert by_name(list(check_duplicates(Fingerprints(data), LabelChecks())))["duplicates"].level == "passed"
