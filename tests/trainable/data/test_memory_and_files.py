"""Tests that images in memory, in the cache and in files are augmented alike, whatever reads them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from trainable.bench import ON_CPU
from trainable.data.assembly import load
from trainable.data.loading import ArrayLoader, FileLoader
from trainable.recipe import Recipe
from trainable.recipe.augmentations import (
    Augmentation,
    AutoAugment,
    NoCrop,
    NoPolicy,
    PadCrop,
    RandAugment,
    RandomErasing,
    ResizedCrop,
    TrivialAugment,
)
from trainable.recipe.data import Data
from trainable.recipe.training import CenterCrop, Evaluation, Loop, Stretch
from trainable.tasks.kits import make_loader

torch.set_num_threads(1)

SIDE, COUNT = 12, 24
BATCHES = torch.arange(COUNT).split(7)
CROPS = (NoCrop(), PadCrop(), ResizedCrop())
POLICIES = (NoPolicy(), RandAugment(), TrivialAugment(), AutoAugment(policy="svhn"))
Sizes = Callable[[int], tuple[int, int]]


def write_smooth_images(root: Path, size_of: Sizes) -> Path:
    """Write images of a few soft spots of colour, so that finer detail hardly differs from coarser."""
    for number in range(COUNT + 6):
        spots = np.random.default_rng(number).integers(0, 256, (3, 3, 3), dtype=np.uint8)
        path = root / ("train", "val")[number >= COUNT] / ("a", "b")[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(spots).resize(size_of(number), Image.Resampling.BICUBIC).save(path)
    return root


@pytest.fixture(scope="module")
def as_large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write images of the size that the recipe has."""
    return write_smooth_images(tmp_path_factory.mktemp("as_large"), lambda _: (SIDE, SIDE))


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_smooth_images(tmp_path_factory.mktemp("larger"), lambda _: (6 * SIDE, 4 * SIDE))


def images(
    root: Path,
    augmentation: Augmentation,
    *,
    in_memory: bool,
    workers: int = 0,
    stored: bool = False,
    resize: Stretch | CenterCrop | None = None,
) -> list[torch.Tensor]:
    """Return the training images of epochs 1 and 2, in grey levels."""
    asked = Recipe(
        data=Data(
            path=str(root),
            image_size=SIDE,
            flips=("horizontal", "vertical"),
            in_memory=in_memory,
            cache="auto" if stored else "off",
        ),
        augmentation=augmentation,
        evaluation=Evaluation(resize=resize or Stretch()),
        loop=Loop(workers=workers),
    )
    data = load(asked.data, resize=asked.evaluation.resize)
    if stored:
        data.be_here()
    loader = make_loader(data, asked, ON_CPU)
    assert isinstance(loader, ArrayLoader if stored or in_memory else FileLoader)
    epochs = [torch.cat([batch for batch, _ in loader.train(BATCHES, epoch)]) for epoch in (1, 2)]
    loader.close()
    return [epoch * loader.std + loader.mean for epoch in epochs]


@pytest.mark.parametrize("resize", [Stretch(), CenterCrop()], ids=lambda resize: resize.kind)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.kind)
@pytest.mark.parametrize("crop", CROPS, ids=lambda crop: crop.kind)
def test_files_stored_at_the_images_size_give_the_pixels_of_memory(
    as_large: Path,
    crop: NoCrop | PadCrop | ResizedCrop,
    policy: NoPolicy | RandAugment | TrivialAugment | AutoAugment,
    resize: Stretch | CenterCrop,
) -> None:
    spec = Augmentation(crop=crop, policy=policy, masking=RandomErasing())

    held = images(as_large, spec, in_memory=True, resize=resize)
    read = images(as_large, spec, in_memory=False, resize=resize)

    assert torch.equal(held[0], read[0])
    assert torch.equal(held[1], read[1])
    assert not torch.equal(read[0], read[1])


@pytest.mark.parametrize("crop", [NoCrop(), PadCrop()], ids=lambda crop: crop.kind)
def test_larger_files_give_the_pixels_of_memory_but_for_resized_crops(
    larger: Path, crop: NoCrop | PadCrop
) -> None:
    spec = Augmentation(crop=crop, policy=RandAugment())

    assert all(map(torch.equal, images(larger, spec, in_memory=True), images(larger, spec, in_memory=False)))


def test_two_workers_give_the_pixels_of_memory(as_large: Path) -> None:
    spec = Augmentation(crop=ResizedCrop(), policy=TrivialAugment())

    held = images(as_large, spec, in_memory=True)

    assert all(map(torch.equal, held, images(as_large, spec, in_memory=False, workers=2)))


@pytest.mark.parametrize("resize", [Stretch(), CenterCrop()], ids=lambda resize: resize.kind)
def test_a_resized_crop_of_a_larger_file_is_the_box_that_memory_cuts(
    larger: Path, resize: Stretch | CenterCrop
) -> None:
    spec = Augmentation(crop=ResizedCrop(scale_min=0.3))

    held = torch.cat(images(larger, spec, in_memory=True, resize=resize))
    read = torch.cat(images(larger, spec, in_memory=False, resize=resize))

    apart = (held - read).abs().mean((1, 2, 3))
    other_boxes = (held - read.roll(COUNT, 0)).abs().mean((1, 2, 3))
    assert apart.max() < 4.0
    assert other_boxes.mean() > 5 * apart.mean()


@pytest.mark.parametrize("resize", [Stretch(), CenterCrop()], ids=lambda resize: resize.kind)
@pytest.mark.parametrize("crop", CROPS, ids=lambda crop: crop.kind)
@pytest.mark.parametrize("size", ["as_large", "larger"])
def test_the_cache_gives_the_pixels_of_the_files(
    size: str,
    crop: NoCrop | PadCrop | ResizedCrop,
    resize: Stretch | CenterCrop,
    request: pytest.FixtureRequest,
) -> None:
    root: Path = request.getfixturevalue(size)
    spec = Augmentation(crop=crop, policy=TrivialAugment(), masking=RandomErasing())

    read = images(root, spec, in_memory=False, resize=resize)
    stored = images(root, spec, in_memory=False, resize=resize, stored=True)

    assert all(map(torch.equal, read, stored))
