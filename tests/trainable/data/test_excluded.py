"""Tests what is said where the list of images to leave out takes too much: a part, or a class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.trainable.data_forms import FORMS, labelled, write_csv, write_forms
from tests.trainable.small_masks import bands, write_mask, write_pairs
from trainable.data.assembly import load, stored_parts
from trainable.data.excluded import names_in_list
from trainable.errors import DataError
from trainable.recipe.data import Data
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data import assembly as mask_assembly

PARTS = ("train", "validation", "test")


def fault_of(spec: Data, masks: Masks | None = None) -> str:
    with pytest.raises(DataError) as caught:
        load(spec) if masks is None else mask_assembly.load(spec, masks)
    return str(caught.value)


def excluding(root: Path, data: Path, images: list[tuple[str, str]]) -> Data:
    """Return the data without some images, each with its part."""
    listed = write_csv(root / "out.csv", [{"part": part, "image": image} for part, image in images])
    return Data(path=str(data), exclude=str(listed))


def masked(root: Path, parts: tuple[str, ...]) -> Path:
    for part in parts:
        write_pairs(root / part, {f"{number}": (0, 1, 2) if number else (0, 2) for number in range(4)})
    return root


def said(fault: str, part: str) -> None:
    """Check that a fault names the list and the part, and what can be done."""
    assert f"data.exclude: {fault.split()[1]} lists all 4 images of the {part} part" in fault
    assert "take rows out of it" in fault
    assert (f"data.{part}: none leaves the {part} part out" in fault) == (part != "train")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_with_masks_of_which_nothing_stays_is_an_error_that_names_the_list(
    tmp_path: Path, part: str
) -> None:
    data = masked(tmp_path / "set", PARTS)
    spec = excluding(tmp_path, data, [(part, f"{part}/images/{number}.jpg") for number in range(4)])
    said(fault_of(spec, Masks()), part)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_with_labels_of_which_nothing_stays_is_the_same_error(tmp_path: Path, part: str) -> None:
    images = labelled({part: [2, 2] for part in PARTS})
    data = write_forms(images, tmp_path / "set")["folder"]
    spec = excluding(tmp_path, data, [(part, each.path) for each in images if each.part == part])
    said(fault_of(spec), part)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("parts", [("train",), PARTS])
def test_a_class_that_loses_its_last_training_image_is_named_with_the_list(
    tmp_path: Path, form: str, parts: tuple[str, ...]
) -> None:
    images = labelled({part: [4, 4, 2] for part in parts})
    data = write_forms(images, tmp_path / "set")[form]
    source = stored_parts(Data(path=str(data), test_fraction=0.0))[0]["train"].source
    names = [names_in_list(source)[row] for row in np.flatnonzero(source.labels == 2).tolist()]
    spec = excluding(tmp_path, data, [("train", each) for each in names])
    assert "out.csv lists all training images of 2 (2); expected some of each class" in fault_of(spec)
    without = spec.model_copy(update={"min_images": 1})
    assert load(without).info.classes == ("0", "1")


def test_a_class_that_another_part_loses_is_named_with_the_list(tmp_path: Path) -> None:
    images = labelled({"train": [2, 2], "test": [2, 2]})
    data = write_forms(images, tmp_path / "set")["folder"]
    spec = excluding(tmp_path, data, [("test", f"test/1/{number:03}.png") for number in range(2)])
    assert "data.exclude lists all test images of 1: take some out of the list" in fault_of(spec)


def test_a_class_that_no_mask_shows_any_more_is_named_with_the_list(tmp_path: Path) -> None:
    data = masked(tmp_path / "set", PARTS)
    spec = excluding(tmp_path, data, [("train", f"train/images/{number}.jpg") for number in (1, 2, 3)])
    assert "out.csv lists all training images of 1 (3);" in fault_of(spec, Masks())


def test_what_is_wrong_with_a_mask_that_the_list_leaves_out_does_not_matter(tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "set", dict.fromkeys("abcdefgh", (0, 1)))
    (data / "masks" / "a.png").write_bytes(b"no image")
    (data / "images" / "b.jpg").write_bytes(b"no image")
    write_mask(data / "masks" / "c.png", bands(0, 1, size=(10, 14)))
    write_mask(data / "masks" / "d.png", bands(0, 1, 77))
    fault = fault_of(Data(path=str(data)), Masks())
    assert "3 of 8 masks cannot be used; repair or remove them, or leave their images out by" in fault

    info = mask_assembly.load(
        excluding(tmp_path, data, [("", f"images/{name}.jpg") for name in "abcd"]), Masks()
    ).info

    assert info.classes == ("0", "1")
    assert info.train_images + info.validation_images + info.test_images == 4


def test_a_class_that_only_listed_masks_show_is_named_where_classes_are_numbers(tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "set", dict.fromkeys("bcdefgh", (0, 1)) | {"a": (0, 2)})
    assert mask_assembly.load(Data(path=str(data)), Masks()).info.classes == ("0", "1", "2")
    fault = fault_of(excluding(tmp_path, data, [("", "images/a.jpg")]), Masks())
    assert "lists all training images of 2 (1); expected some of each class" in fault


def test_too_few_images_with_masks_to_split_are_an_error_without_a_field_that_masks_have_not(
    tmp_path: Path,
) -> None:
    data = write_pairs(tmp_path / "set", dict.fromkeys("abc", (0, 1)))
    fault = fault_of(excluding(tmp_path, data, [("train", "images/a.jpg")]), Masks())
    assert "2 images with masks are too few to split; expected 3 or more, one for each part" in fault
    assert "data.test_fraction: 0" in fault
    assert "min_images" not in fault


def test_of_images_with_one_name_the_listed_one_alone_is_left_out(tmp_path: Path) -> None:
    data = write_forms(labelled({"train": [4, 4]}), tmp_path / "set")["datasets"]
    found = load(excluding(tmp_path, data, [("train", "000.png #2")])).info
    assert sum((found.train_images, found.validation_images, found.test_images)) == 7
