"""Tests which images of two parts are found to be nearly the same, and which are only of one kind."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from trainable.checks.duplicates import Fingerprints, check_duplicates
from trainable.checks.finding import Finding
from trainable.checks.sampling import chosen_positions
from trainable.data import ArrayPart, DataSet
from trainable.data.assembly import from_arrays
from trainable.tasks.classification.checks.label_checks import LabelChecks

SIDE = 32
Pixels = NDArray[np.uint8]


def scenes(count: int, seed: int) -> Pixels:
    """Return photographs of one kind, uint8 [count, SIDE, SIDE, 3]: each has the same wall and, on it, what
    has as little detail as photographs have (amplitudes fall with the frequency)."""
    random = np.random.default_rng(seed)
    across, down = np.meshgrid(np.fft.fftfreq(SIDE), np.fft.fftfreq(SIDE))
    falling = 1 / np.maximum(np.hypot(across, down), 1 / SIDE)
    things = np.fft.ifft2(np.fft.fft2(random.normal(size=(count, SIDE, SIDE))) * falling).real
    wall = 80 * np.linspace(-1, 1, SIDE)
    grey: Pixels = np.clip(128 + wall + 30 * things / things.std(), 0, 255).astype(np.uint8)
    return np.stack([grey, grey, grey], axis=3)


def data_of(train: Pixels, validation: Pixels) -> DataSet:
    return from_arrays((train, np.arange(len(train)) % 2), (validation, np.arange(len(validation)) % 2))


def found_in(data: DataSet) -> dict[str, Finding]:
    return {finding.check: finding for finding in check_duplicates(Fingerprints(data), LabelChecks())}


def saved_anew(image: Image.Image) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=50)
    return Image.open(file)


def smaller(image: Image.Image) -> Image.Image:
    return image.resize((3 * SIDE // 4, 3 * SIDE // 4)).resize((SIDE, SIDE))


def brighter(image: Image.Image) -> Image.Image:
    return ImageEnhance.Brightness(image).enhance(1.15)


def changed(images: Pixels, change: Callable[[Image.Image], Image.Image]) -> Pixels:
    return np.stack([np.asarray(change(Image.fromarray(image))) for image in images])


@pytest.mark.parametrize("images", [30, 300])
def test_images_of_one_kind_are_not_taken_for_the_same(images: int) -> None:
    found = found_in(data_of(scenes(images, 0), scenes(images // 3, 1)))
    assert found["near-duplicates"].level == "passed", found["near-duplicates"].what
    assert f"all {images + images // 3} compared" in found["near-duplicates"].what


@pytest.mark.parametrize("images", [30, 300])
@pytest.mark.parametrize("change", [saved_anew, smaller, brighter])
def test_copies_that_were_changed_a_little_are_named_with_their_originals(
    change: Callable[[Image.Image], Image.Image], images: int
) -> None:
    train, validation = scenes(images, 0), scenes(images // 3, 1)
    validation[4:8] = changed(train[10:14], change)
    found = found_in(data_of(train, validation))
    near = found["near-duplicates"]
    assert (near.level, found["duplicates"].level) == ("warning", "passed")
    assert near.what.startswith("4 validation images (")
    assert "validation 4 ~ train 10, validation 5 ~ train 11, validation 6 ~ train 12 and 1 more" in near.what
    assert "data.group" in near.do
    assert near.copies_in == "validation"


def test_equal_images_are_named_as_such_alone() -> None:
    train, validation = scenes(60, 0), scenes(40, 1)
    validation[:3] = train[:3]
    found = found_in(data_of(train, validation))
    assert "3 validation images" in found["duplicates"].what
    assert found["near-duplicates"].level == "passed"


def test_pairs_in_the_noise_of_the_score_are_a_note_and_half_of_a_part_is_no_error() -> None:
    train, validation = scenes(300, 0), scenes(200, 1)
    validation[7] = changed(train[:1], smaller)[0]
    assert found_in(data_of(train, validation))["near-duplicates"].level == "note"
    validation[:100] = changed(train[:100], smaller)
    assert found_in(data_of(train, validation))["near-duplicates"].level == "warning"


def test_images_of_a_single_grey_are_like_no_other() -> None:
    train, validation = scenes(60, 0), scenes(20, 1)
    train[0], validation[0] = 7, 8
    assert found_in(data_of(train, validation))["near-duplicates"].level == "passed"


def test_positions_are_those_of_the_part_where_a_sample_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    train, validation = scenes(60, 0), scenes(60, 1)
    data = data_of(train, validation)
    monkeypatch.setattr("trainable.checks.near_duplicates.MOST", 80)
    chosen = chosen_positions(data, 80)
    original, copy = int(chosen["train"][-1]), int(chosen["validation"][-1])
    assert len(chosen["validation"]) == 20 < copy
    validation[copy] = changed(train[original][None], smaller)[0]
    assert isinstance(data.validation, ArrayPart)
    leaking = replace(data, validation=data_of(train, validation).validation)
    what = found_in(leaking)["near-duplicates"].what
    assert f"validation {copy} ~ train {original} (a sample of 80 of 120 compared)" in what
