"""Tests data sets of images with masks: what is measured, held, split and refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.trainable.small_masks import write_pairs
from tests.trainable.small_segmentations import CLASSES, drawn, mask_data, mask_recipe, write_masks
from trainable.data import DataInfo
from trainable.data.source import Pixels
from trainable.errors import DataError
from trainable.recipe import Recipe
from trainable.recipe.tasks import window_side
from trainable.tasks.segmentation.data.parts import MaskedPart

SIZES = ((20, 28), (24, 24))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_masks(tmp_path_factory.mktemp("masks"), 24, SIZES)


def test_what_is_known_of_the_images(root: Path) -> None:
    data = mask_data(mask_recipe(root))
    info = data.info
    assert isinstance(data.train, MaskedPart)
    masks = [np.asarray(Image.open(root / "masks" / Path(name).name)) for name in data.train.names]
    images = [np.asarray(Image.open(root / "images" / Path(name).name)) for name in data.train.names]
    pixels = np.concatenate([image.reshape(-1, 3) for image in images])
    assert info.task.windowed
    assert info.classes == CLASSES
    assert info.pixel_counts == tuple(int(sum((mask == each).sum() for mask in masks)) for each in range(3))
    assert info.class_counts == tuple(sum(bool((mask == each).any()) for mask in masks) for each in range(3))
    assert info.mean == pytest.approx(pixels.mean(0) / 255.0)
    assert info.std == pytest.approx(pixels.std(0) / 255.0)
    assert (info.train_images, info.validation_images, info.test_images) == (16, 4, 4)
    assert DataInfo.from_tree(info.tree()) == info


def test_what_is_measured_of_files_is_what_is_measured_in_memory(root: Path) -> None:
    held = mask_data(mask_recipe(root, {"data.in_memory": True})).info
    files = mask_data(mask_recipe(root, {"data.in_memory": False})).info
    assert replace(files, in_memory=True) == held


def test_a_set_survives_a_pickle(root: Path) -> None:
    data = mask_data(mask_recipe(root))
    again = pickle.loads(pickle.dumps(data))
    assert again.info == data.info
    assert isinstance(data.train, MaskedPart)
    np.testing.assert_array_equal(again.train.values, data.train.values)


def test_the_digest_follows_the_masks(root: Path, tmp_path: Path) -> None:
    same = write_masks(tmp_path / "same", 24, SIZES)
    assert mask_data(mask_recipe(same)).info.digest == mask_data(mask_recipe(root)).info.digest
    mask = drawn(0, *SIZES[0])[1]
    mask[:2] = 1
    Image.fromarray(mask).save(same / "masks" / "000.png")
    assert mask_data(mask_recipe(same)).info.digest != mask_data(mask_recipe(root)).info.digest


def moved(mask: Pixels, root: Path) -> None:
    """Move the shapes, so that each class has as many pixels as before."""
    Image.fromarray(np.roll(mask, 3, axis=1)).save(root / "masks" / "000.png")


def swapped(mask: Pixels, root: Path) -> None:
    """Give two images of one size each other's masks."""
    first, second = root / "masks" / "000.png", root / "masks" / "002.png"
    first.write_bytes(second.read_bytes())
    Image.fromarray(mask).save(second)


@pytest.mark.parametrize("change", [moved, swapped])
def test_where_the_masks_show_what_counts(
    root: Path, tmp_path: Path, change: Callable[[Pixels, Path], None]
) -> None:
    other = write_masks(tmp_path / "other", 24, SIZES)
    before = mask_data(mask_recipe(root)).info
    change(np.asarray(Image.open(other / "masks" / "000.png")), other)
    after = mask_data(mask_recipe(other)).info
    assert sum(after.pixel_counts) == sum(before.pixel_counts)
    assert after.digest != before.digest


@pytest.mark.parametrize(("threshold", "soft"), [(None, 0), (128, 16)])
def test_where_binary_masks_show_their_foreground_counts(
    tmp_path: Path, threshold: int | None, soft: int
) -> None:
    """A soft border that covers the whole mask hides nothing: what reaches the threshold counts."""
    digests = set()
    for name, shift in (("one", 0), ("same", 0), ("moved", 3)):
        folder = write_masks(tmp_path / name, 24, SIZES)
        (folder / "classes.txt").write_text("background\nforeground\n")
        for path in sorted((folder / "masks").iterdir()):
            shape = np.roll(np.asarray(Image.open(path)) == 1, shift, axis=1)
            Image.fromarray(np.where(shape, 235, soft).astype(np.uint8)).save(path)
        masks = {"task.masks.values": "binary", "task.masks.threshold": threshold}
        digests.add(mask_data(mask_recipe(folder, masks)).info.digest)
    assert len(digests) == 2


def test_images_of_twelve_bits_are_told_though_most_have_eight(root: Path, tmp_path: Path) -> None:
    write_masks(tmp_path, 24, SIZES)
    for number in range(0, 24, 4):
        path = tmp_path / "images" / f"{number:03}.png"
        Image.fromarray(drawn(number, *SIZES[0], 1)[0].astype(np.uint16) * 16).save(path)
    assert "levels of 256" in mask_data(mask_recipe(tmp_path)).info.few_levels
    assert not mask_data(mask_recipe(root)).info.few_levels


@pytest.mark.parametrize(("longer", "side"), [(256, 128), (100, 128), (70, 96), (28, 32), (20, 24)])
def test_the_default_window_is_as_large_as_most_images_up_to_a_limit(longer: int, side: int) -> None:
    assert window_side(longer, gpu=False) == side
    assert window_side(2048, gpu=True) == 512
    assert window_side(500, gpu=True) == 512


def test_a_class_that_no_training_image_shows_is_an_error(root: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("\n".join([*CLASSES, "tree"]) + "\n")
    with pytest.raises(
        DataError, match=r"no training image shows the class tree.*task\.masks\.void: \[.tree.\]"
    ):
        mask_data(mask_recipe(root, {"task.masks.classes": str(names)}))


def test_a_void_class_is_not_learnt(root: Path) -> None:
    data = mask_data(mask_recipe(root, {"task.masks.void": ["disc"]}))
    assert data.info.classes == ("ground", "square")
    assert len(data.info.pixel_counts) == 2


def test_broken_images_are_named(tmp_path: Path) -> None:
    root = write_masks(tmp_path, 24, SIZES)
    whole = (root / "images" / "003.png").read_bytes()
    (root / "images" / "003.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"1 of 24 images cannot be decoded; .*:\n.*003.png"):
        mask_data(mask_recipe(root))


def refused(recipe: Recipe) -> str:
    """Return what is wrong with a recipe's images; nothing if they are sound."""
    try:
        mask_data(recipe)
    except DataError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("split_here", [True, False])
def test_another_split_is_advised_only_where_parts_are_split_here(tmp_path: Path, split_here: bool) -> None:
    """The class that other parts show alone may come into training by another draw."""
    parts = {"train": range(6)} if split_here else {"train": range(4), "val": range(4, 6)}
    for part, numbers in parts.items():
        folder = tmp_path if split_here else tmp_path / part
        write_pairs(folder, {str(number): (0, 1, 2) if number == 5 else (0, 1) for number in numbers})
    values = {"data.path": str(tmp_path), "data.test_fraction": 0.0, "task.masks.classes": None}
    faults = [refused(mask_recipe(tmp_path, {**values, "data.split_seed": seed})) for seed in range(8)]
    named = [fault for fault in faults if fault]
    assert named
    assert all("no training image shows the class 2; expected each class in one" in each for each in named)
    assert {"data.split_seed" in each for each in named} == {split_here}


@pytest.mark.parametrize(
    ("threshold", "level", "advice"),
    [
        (None, 0, "or more: see that task.masks.folder (of a manifest task.masks.column) names the masks"),
        (128, 0, "or more: see that task.masks.folder (of a manifest task.masks.column) names the masks"),
        (
            128,
            15,
            "set task.masks.threshold: 8 if foreground begins at half of 15, or task.masks.threshold: 1",
        ),
    ],
)
def test_of_binary_masks_without_foreground_no_class_and_no_value_is_left_out(
    tmp_path: Path, threshold: int | None, level: int, advice: str
) -> None:
    write_pairs(tmp_path, dict.fromkeys("abcdef", (0, level // 2, level)))
    values = {"task.masks.classes": None, "task.masks.values": "binary", "task.masks.threshold": threshold}
    fault = refused(mask_recipe(tmp_path, values))
    assert "no training image shows the class foreground" in fault
    assert advice in fault
    assert "task.masks.void" not in fault
    assert "task.masks.values" not in fault
