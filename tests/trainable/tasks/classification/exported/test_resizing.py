"""Tests that images become squares inside a graph as torch and the decoder make them, level by level."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate

from trainable.data.decode import Form, Resize, square
from trainable.recipe.data import Interpolation
from trainable.recipe.training import CenterCrop, Stretch
from trainable.tasks.classification.exported.classifier import squared

FILTERS: tuple[Interpolation, ...] = ("bilinear", "bicubic")
MOST_THAT_DIFFER = 1e-3  # the share of levels that may be one off: where a sum of float32 lies at a half


def noise(height: int, width: int, channels: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(height * width)
    return torch.randint(0, 256, (1, channels, height, width), dtype=torch.uint8, generator=generator)


def assert_same_levels(got: torch.Tensor, expected: torch.Tensor) -> None:
    away = (got - expected.float()).abs()
    assert away.max() <= 1.0
    assert (away > 0.0).float().mean() <= MOST_THAT_DIFFER


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize("size", [(100, 100), (31, 47), (64, 64), (375, 500), (700, 40), (1, 1)], ids=str)
@pytest.mark.parametrize("side", [8, 64, 224])
def test_stretched_images_are_those_of_torchs_uint8_filters(
    size: tuple[int, int], side: int, interpolation: Interpolation
) -> None:
    images = noise(*size)
    expected = interpolate(images, (side, side), mode=interpolation, antialias=True)
    assert_same_levels(squared(images.float(), side, Stretch(), interpolation), expected)


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize("ratio", [0.875, 0.9, 1.0, 0.01])
@pytest.mark.parametrize("size", [(375, 500), (500, 375), (33, 64), (12, 12), (3, 2)], ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_cropped_images_are_those_of_the_decoder(
    size: tuple[int, int], ratio: float, interpolation: Interpolation, channels: int
) -> None:
    resize: Resize = CenterCrop(ratio=ratio)
    images = noise(*size, channels=channels)
    stored = np.moveaxis(images[0].numpy(), 0, -1)
    image = Image.fromarray(stored[:, :, 0] if channels == 1 else stored)
    expected = square(image, Form(1 if channels == 1 else 3, 32, resize, interpolation))
    assert_same_levels(squared(images.float(), 32, resize, interpolation)[0], torch.from_numpy(expected))


def test_images_that_are_such_squares_stay_as_they_are() -> None:
    images = noise(48, 48)
    assert torch.equal(squared(images.float(), 48, Stretch(), "bicubic"), images.float())
