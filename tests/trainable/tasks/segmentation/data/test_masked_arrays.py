"""Tests arrays of images with masks: .npz files, and a person's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainable.small_masks import bands
from trainable.bench import HERE
from trainable.data.source import Collection
from trainable.errors import DataError
from trainable.recipe.data import Data
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.collection import surveyed
from trainable.tasks.segmentation.data.parts import MaskedSource
from trainable.tasks.segmentation.data.reading import pairs_of_arrays, read

IMAGES = np.zeros((6, 10, 12, 3), np.uint8)
MASKS = np.stack([bands(0, number % 3) for number in range(6)])


def own(images: Any = IMAGES, masks: Any = MASKS, **spec: Any) -> Collection:
    found = Masks(**spec)
    pairs = pairs_of_arrays("arrays", {"train": (images, masks)}, found)
    return surveyed(pairs, Data(path="arrays"), found)


def test_an_npz_file_has_masks_in_the_place_of_labels(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez(path, train_images=IMAGES, train_masks=MASKS, val_images=IMAGES[:2], val_masks=MASKS[:2])

    found = read(Data(path=str(path)), HERE, Masks())

    assert (found.format, found.classes) == ("npz", ("0", "1", "2"))
    assert {part: len(source) for part, source in found.parts.items()} == {"train": 6, "validation": 2}
    source = found.parts["train"]
    assert isinstance(source, MaskedSource)
    assert (source.name(2), source.masks.name(2), source.encoded) == ("2", "2", False)
    np.testing.assert_array_equal(source.class_mask(2), MASKS[2])
    assert source.open(2).size == (12, 10)
    assert source.sizes_and_times(np.array([1])).tolist() == [[480, 0]]


def test_an_npz_file_without_masks_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez(path, train_images=IMAGES, train_labels=np.zeros(6, np.int64))

    with pytest.raises(
        DataError, match=r"expected train_images and train_masks .*, found train_images, train"
    ):
        read(Data(path=str(path)), HERE, Masks())


def test_groups_cannot_be_found_in_arrays(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez(path, train_images=IMAGES, train_masks=MASKS)

    with pytest.raises(DataError, match=r"data\.group: .*set\.npz \(format npz\) names no files"):
        read(Data(path=str(path), group="(.)"), HERE, Masks())


@pytest.mark.parametrize("kind", [np.int64, np.uint16, np.bool_, np.int8])
def test_masks_may_be_of_any_whole_numbers_that_fit(kind: Any) -> None:
    found = own(masks=(MASKS % 2).astype(kind)[..., None])

    assert found.classes == ("0", "1")


@pytest.mark.parametrize(
    ("images", "masks", "problem"),
    [
        (IMAGES.astype(float), MASKS, r"arrays: train: images must be uint8 from 0 to 255, got float64"),
        (IMAGES, MASKS.astype(float), r"masks must be one whole number a pixel, \[N, H, W\], got float64"),
        (IMAGES, np.stack([MASKS] * 3, -1), r"got uint8 \[6, 10, 12, 3\]"),
        (IMAGES, MASKS[:5], r"the images are \[6, 10, 12, 3\] and the masks \[5, 10, 12\]; expected a mask"),
        (IMAGES, MASKS[:, :9], r"and the masks \[6, 9, 12\]"),
        (IMAGES[:0], MASKS[:0], r"the masks \[0, 10, 12\]"),
        (IMAGES, MASKS.astype(np.int64) - 1, r"the array of masks has the value -1; expected numbers of"),
        (IMAGES, MASKS.astype(np.int64) * 200, r"the array of masks has the value 400"),
    ],
)
def test_arrays_of_the_wrong_kind_are_an_error(images: Any, masks: Any, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        own(images, masks)


def test_numbers_that_no_byte_holds_are_foreground_of_binary_masks() -> None:
    found = own(masks=MASKS.astype(np.int64) * 256, values="binary")

    assert found.surveys is not None
    assert found.surveys["train"].pixels[:3].tolist() == [[120, 0], [60, 60], [60, 60]]


def test_binary_masks_of_0_and_255_have_the_digests_of_those_of_0_and_1() -> None:
    ones = np.minimum(MASKS, 1)
    found = [own(masks=masks, values="binary").surveys for masks in (ones, ones * np.uint8(255))]
    assert found[0] is not None
    assert found[1] is not None
    np.testing.assert_array_equal(found[0]["train"].digests, found[1]["train"].digests)
