"""Tests batches of images with masks: the same from memory and from files, whatever they are read with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.trainable.small_segmentations import mask_data, mask_recipe, write_masks
from trainable.augmentation.operations import Operation, apply
from trainable.bench import ON_CPU, Bench
from trainable.data import DataSet
from trainable.data.loading import Loader
from trainable.recipe import Recipe
from trainable.recipe.tasks import IGNORED
from trainable.tasks.kits import make_loader
from trainable.tasks.segmentation.data.parts import MaskedFilePart, MaskedPart

CPU = torch.device("cpu")
SIZES = ((24, 24), (17, 30), (30, 17))
AUGMENTED = {
    "augmentation.crop.kind": "scaled",
    "augmentation.policy.kind": "randaugment",
    "augmentation.masking.kind": "erasing",
    "data.flips": ["horizontal"],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_masks(tmp_path_factory.mktemp("masks"), 24, SIZES)


def loader(recipe: Recipe, data: DataSet | None = None) -> Loader:
    return make_loader(data or mask_data(recipe), recipe, ON_CPU)


def epoch(recipe: Recipe, size: int = 5, number: int = 1) -> tuple[Tensor, Tensor]:
    made = loader(recipe)
    batches = list(made.train(torch.arange(16).split(size), number))
    made.close()
    return torch.cat([images for images, _ in batches]), torch.cat([masks for _, masks in batches])


def test_training_batches_are_windows_with_masks_of_classes(root: Path) -> None:
    images, masks = epoch(mask_recipe(root, AUGMENTED))
    assert images.shape == (16, 3, 16, 16)
    assert images.dtype == torch.float32
    assert masks.shape == (16, 16, 16)
    assert masks.dtype == torch.int64
    assert set(masks.unique().tolist()) == {0, 1, 2, IGNORED}


@pytest.mark.parametrize("workers", [0, 2])
def test_files_give_the_batches_of_memory(root: Path, workers: int) -> None:
    held = mask_recipe(root, {**AUGMENTED, "data.in_memory": True})
    files = held.with_values({"data.in_memory": False, "loop.workers": workers})
    assert isinstance(mask_data(held).train, MaskedPart)
    assert isinstance(mask_data(files).train, MaskedFilePart)
    for one, other in zip(epoch(held), epoch(files), strict=True):
        assert torch.equal(one, other)


def test_a_window_does_not_depend_on_its_batch(root: Path) -> None:
    recipe = mask_recipe(root, AUGMENTED)
    for one, other in zip(epoch(recipe, 16), epoch(recipe, 3), strict=True):
        torch.testing.assert_close(one, other, atol=0.04, rtol=0.0)  # one level of a pixel, by rounding


@pytest.mark.parametrize("crop", ["none", "pad"])
def test_portions_are_handed_out_as_the_batches_of_one_at_a_time(root: Path, crop: str) -> None:
    made = loader(mask_recipe(root, {**AUGMENTED, "augmentation.crop.kind": crop, "data.in_memory": True}))
    assert made.portion_images == 2 * 2**20 // (4 * 16 * 16)
    made.portion_images = 0
    batches = torch.arange(16).split(3)
    each = list(made.train(batches, 1))

    made.portion_images = 8
    for one, other in zip(made.train(batches, 1), each, strict=True):
        assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize(("crop", "portions"), [("none", True), ("pad", True), ("scaled", False)])
def test_windows_that_are_copied_come_in_portions_from_a_gpu(root: Path, crop: str, portions: bool) -> None:
    recipe = mask_recipe(root, {**AUGMENTED, "augmentation.crop.kind": crop, "data.in_memory": True})
    made = make_loader(mask_data(recipe), recipe, Bench(device_name="cuda"))
    assert (made.portion_images > 16) is portions
    batches = torch.arange(16).split(3)
    in_slices = list(made.train(batches, 1))

    made.portion_images = 0
    for one, other in zip(made.train(batches, 1), in_slices, strict=True):
        assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def test_evaluation_shows_every_image_once_whole_and_in_its_own_size(root: Path) -> None:
    recipe = mask_recipe(root)
    data = mask_data(recipe)
    shown = [mask.numpy() for _, masks in loader(recipe, data).evaluate("validation") for mask in masks]
    assert isinstance(data.validation, MaskedPart)
    paths = [root / "masks" / Path(name).name for name in data.validation.names]
    stored = [np.asarray(Image.open(path)) for path in paths]
    assert sorted(each.shape for each in shown) == sorted(each.shape for each in stored)
    whole = sorted(each.astype(np.int64).tobytes() for each in stored)
    assert sorted(each.tobytes() for each in shown) == whole


def test_batches_of_evaluation_have_images_of_one_size(root: Path) -> None:
    recipe = mask_recipe(root)
    batches = list(loader(recipe).evaluate("train", batch=3))
    assert all(len(images) <= 3 and images.shape[-2:] == masks.shape[-2:] for images, masks in batches)
    assert len({images.shape[-2:] for images, _ in batches}) == len(SIZES)


def test_unchanged_images_are_windows_without_augmentation(root: Path) -> None:
    recipe = mask_recipe(root, AUGMENTED)
    made = loader(recipe)
    (images, masks), *rest = list(made.unchanged(np.arange(7), 4))
    assert images.shape == (4, 3, 16, 16)
    assert len(rest) == 1
    assert not (masks == IGNORED).any(), "each of these images is larger than a window"


def test_pixels_of_images_and_masks_move_together(root: Path) -> None:
    """Where a turned image is black, its mask is ignored, and vice versa."""
    bright = torch.full((3, 3, 20, 20), 200, dtype=torch.uint8)
    marked = torch.full((3, 1, 20, 20), IGNORED - 1, dtype=torch.uint8)
    turned = apply(Operation.ROTATE, torch.cat([bright, marked], 1), np.array([10.0, -20.0, 30.0]))
    assert torch.equal(turned[:, 0] == 0, turned[:, 3] == 0)
    assert (turned[:, 3] == 0).any()
    assert set(turned[:, 3].unique().tolist()) == {0, IGNORED - 1}


@pytest.mark.parametrize("operation", [each for each in Operation if each >= Operation.BRIGHTNESS])
def test_photometric_operations_leave_masks_alone(operation: Operation) -> None:
    random = np.random.default_rng(0)
    planes = torch.from_numpy(random.integers(0, 256, (2, 4, 12, 12), dtype=np.uint8))
    amounts = np.array([0.5, 4.0])
    changed = apply(operation, planes, amounts)
    assert torch.equal(changed[:, 3], planes[:, 3])
    assert torch.equal(changed[:, :3], apply(operation, planes[:, :3], amounts))


def test_the_window_of_a_grey_image_has_one_channel(tmp_path: Path) -> None:
    images, masks = epoch(mask_recipe(write_masks(tmp_path, 24, SIZES, channels=1)))
    assert images.shape == (16, 1, 16, 16)
    assert masks.shape == (16, 16, 16)


def test_a_larger_second_showing_is_augmented_anew(root: Path) -> None:
    recipe = mask_recipe(root, AUGMENTED)
    data = mask_data(recipe)
    count, made = len(data.train), loader(recipe, data)
    ((images, _),) = made.train([torch.tensor([2, 2 + count])], 0)
    assert not torch.equal(images[0], images[1])
