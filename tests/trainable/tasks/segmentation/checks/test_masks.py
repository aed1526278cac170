"""Tests that faults of masks are found without training a network, and that sound masks pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.trainable.alarms import alarms
from tests.trainable.small_segmentations import mask_data, mask_recipe, write_masks
from tests.trainable.tasks.segmentation.checks.mask_sets import (
    data_of,
    ignored,
    moved,
    sound_recipe,
    swapped,
    with_masks,
    without,
)
from trainable.bench import ON_CPU
from trainable.check import check_data, make_subject
from trainable.checks.finding import CheckName
from trainable.checks.images import check_decoding, check_normalisation
from trainable.checks.sampling import NamedImage
from trainable.data import DataSet
from trainable.recipe import Recipe
from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.checks.masks import (
    MaskCounts,
    check_mask_contradictions,
    check_masks,
    check_values,
    pixel_difference,
)

Array = NDArray[Any]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    return sound_recipe(tmp_path_factory.mktemp("masks"))


@pytest.fixture(scope="module")
def data(recipe: Recipe) -> DataSet:
    return data_of(recipe)


def test_sound_masks_raise_no_alarm(recipe: Recipe, data: DataSet) -> None:
    found = list(check_data(make_subject(recipe, data, None, ON_CPU)))
    assert alarms(found) == {}
    names = {finding.check for finding in found}
    assert {"class balance", "ignored pixels", "mask values", "mask position", "window"} <= names
    assert {"pixel values", "normalisation", "duplicates", "near-duplicates", "contradictions"} <= names


def test_masks_in_files_are_checked_as_those_in_memory(recipe: Recipe, data: DataSet) -> None:
    streamed = mask_data(recipe.with_values({"data.in_memory": False}))
    assert [each.what for each in check_masks(streamed, recipe)] == [
        each.what for each in check_masks(data, recipe)
    ]


@pytest.mark.parametrize(
    ("change", "parts", "found_by", "level", "what"),
    [
        (moved(5, 0), (), "mask position", "warning", "if masks are moved 5 px up"),
        (moved(-3, 4), (), "mask position", "warning", "if masks are moved 3 px down and 4 px left"),
        (swapped, ("train",), "mask position", "warning", "on those of other images' masks"),
        (
            without(2),
            ("validation",),
            "class balance",
            "error",
            "1 of 3 classes are in no validation mask: disc",
        ),
        (without(2), ("test",), "class balance", "warning", "in no test mask"),
        (ignored, ("validation",), "ignored pixels", "error", "9 of 9 validation masks are ignored whole"),
    ],
)
def test_faults_of_masks_are_found(
    recipe: Recipe,
    data: DataSet,
    change: Callable[[list[Array]], list[Array]],
    parts: tuple[str, ...],
    found_by: CheckName,
    level: str,
    what: str,
) -> None:
    found = alarms(list(check_masks(with_masks(data, change, *parts), recipe)))[found_by]
    assert found.level == level
    assert what in found.what


@pytest.mark.parametrize("offset", [(1, 0), (0, -1)])
def test_borders_that_are_a_pixel_off_are_no_fault(
    recipe: Recipe, data: DataSet, offset: tuple[int, int]
) -> None:
    assert "mask position" not in alarms(list(check_masks(with_masks(data, moved(*offset)), recipe)))


def half_ignored(masks: list[Array]) -> list[Array]:
    return [np.where(np.arange(len(each))[:, None] < 0.7 * len(each), IGNORED, each) for each in masks]


def test_masks_that_are_mostly_ignored_are_told(recipe: Recipe, data: DataSet) -> None:
    found = alarms(list(check_masks(with_masks(data, half_ignored, "train"), recipe)))["ignored pixels"]
    assert "of the pixels of train masks are ignored" in found.what
    assert "task.masks.ignore_index: null" in found.do


def only_a_pixel(masks: list[Array]) -> list[Array]:
    """Leave one pixel of the class `disc` in each mask."""
    found = []
    for mask in masks:
        small = np.where(mask == 2, 0, mask)
        small[0, 0] = 2
        found.append(small)
    return found


def test_a_class_of_few_pixels_is_told_unless_the_loss_counts_classes_alike(
    recipe: Recipe, data: DataSet
) -> None:
    tiny = with_masks(data, only_a_pixel)
    found = alarms(list(check_masks(tiny, recipe)))["class weights"]
    assert "of class disc to" in found.what
    assert "task.loss.dice: 1" in found.do
    alike = recipe.with_values({"task.loss.dice": 1.0})
    assert "class weights" not in alarms(list(check_masks(tiny, alike)))


def only_in(count: int) -> Callable[[list[Array]], list[Array]]:
    return lambda masks: masks[:count] + without(2)(masks[count:])


def test_a_class_that_few_images_show_is_told(recipe: Recipe, data: DataSet) -> None:
    found = alarms(list(check_masks(with_masks(data, only_in(3)), recipe)))["class balance"]
    assert "classes that few train images show: disc (3)" in found.what


def numbered(images: int, classes: int, seed: int = 0) -> MaskCounts:
    """Return the counts of masks that number their objects, of which each image has some."""
    random = np.random.default_rng(seed)
    objects = random.integers(2, classes, images)
    pixels = np.where(np.arange(classes) <= objects[:, None], 50, 0)
    return MaskCounts(pixels, np.zeros(images, np.int64), images)


def test_masks_that_number_objects_are_told_from_those_of_classes(data: DataSet) -> None:
    many = replace(data, info=_with_classes(data, 12))
    found = check_values(many, numbered(40, 12))
    assert found.level == "warning"
    assert found.do.startswith("task.masks.values: binary")
    random = np.random.default_rng(1)
    scattered = MaskCounts(random.integers(0, 2, (40, 12)) * 9, np.zeros(40, np.int64), 40)
    assert check_values(many, scattered).level == "passed"
    everywhere = MaskCounts(np.full((40, 12), 9), np.zeros(40, np.int64), 40)
    assert check_values(many, everywhere).level == "passed"


def _with_classes(data: DataSet, count: int) -> Any:
    names = tuple(f"class {number}" for number in range(count))
    return replace(data.info, classes=names, class_counts=(9,) * count, pixel_counts=(9,) * count)


def test_shares_of_pixels_are_compared_image_by_image() -> None:
    def parts(shares: tuple[float, float], spread: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        random = np.random.default_rng(0)
        first, second = (np.clip(share + random.normal(0.0, spread, 40), 0.0, 1.0) for share in shares)
        pixels = [
            np.stack([1_000 * (1.0 - each), 1_000 * each], 1).astype(np.int64) for each in (first, second)
        ]
        return pixels[0], pixels[1]

    sure = pixel_difference(*parts((0.2, 0.5), 0.05), ("ground", "tree"))
    assert sure is not None
    assert sure.differ
    assert "tree 5" in sure.what
    by_luck = pixel_difference(*parts((0.45, 0.5), 0.4), ("ground", "tree"))
    assert by_luck is not None
    assert not by_luck.differ
    few = np.ones((3, 2), np.int64)
    assert pixel_difference(few, few, ("ground", "tree")) is None


@pytest.mark.parametrize(
    ("side", "level", "what"),
    [
        (128, "warning", "of what windows show lies outside of an image"),
        (64, "passed", "windows of 64 px"),
        (8, "note", "one shows 1."),
    ],
)
def test_windows_are_compared_with_images(recipe: Recipe, side: int, level: str, what: str) -> None:
    sized = recipe.with_values({"data.image_size": side})
    (found,) = (each for each in check_masks(mask_data(sized), sized) if each.check == "window")
    assert found.level == level
    assert what in found.what


def test_normalisation_is_of_whole_images_of_any_size(recipe: Recipe, data: DataSet) -> None:
    (found,) = check_normalisation(make_subject(recipe, data, None, ON_CPU))
    assert found.level == "passed"
    darker = replace(data, info=replace(data.info, mean=(0.9,) * 3))
    (found,) = check_normalisation(make_subject(recipe, darker, None, ON_CPU))
    assert found.level == "error"


def test_an_image_with_two_masks_is_named(tmp_path: Path) -> None:
    write_masks(tmp_path, count=40, sizes=((32, 32),))
    for number in range(0, 40, 2):
        twin = (tmp_path / "images" / f"{number:03}.png").read_bytes()
        (tmp_path / "images" / f"{number + 1:03}.png").write_bytes(twin)
    recipe = mask_recipe(tmp_path)
    subject = make_subject(recipe, mask_data(recipe), None, ON_CPU)
    (found,) = (each for each in check_data(subject) if each.check == "contradictions")
    assert found.level == "warning"
    assert "40 of 40 images also occur with another mask" in found.what


def test_every_image_with_a_mask_is_decoded_if_asked(recipe: Recipe) -> None:
    streamed = mask_data(recipe.with_values({"data.in_memory": False}))
    (found,) = check_decoding(streamed)
    assert found.what == "all 60 images can be decoded"


def test_every_mask_of_one_image_is_compared_with_the_first(tmp_path: Path) -> None:
    data = mask_data(mask_recipe(write_masks(tmp_path, count=12)))
    group = [NamedImage("train", position, 0, f"{position}.png") for position in (0, 0, 1)]
    found = check_mask_contradictions(data, [group])
    assert found.what == "3 of 3 images also occur with another mask: 0.png = 1.png"
    assert check_mask_contradictions(data, [group[:2]]).level == "passed"
