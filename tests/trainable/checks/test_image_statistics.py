"""Tests the simple statistics of images against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageFilter

from trainable.checks.image_statistics import QUANTILES, statistics_of


def noise(channels: int, side: int, count: int = 6) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(side).integers(0, 256, (count, channels, side, side), dtype=np.uint8)


def test_the_named_figures_come_first_and_are_numpys() -> None:
    images = noise(3, 24)
    found = statistics_of(images)
    assert found.names == ("red", "green", "blue", "contrast", "sharpness")
    wide = images.astype(float)
    grey = wide.mean(1)
    steps = [(np.diff(grey, axis=axis) ** 2).mean((1, 2)) for axis in (1, 2)]
    expected = [*wide.mean((2, 3)).T, grey.std((1, 2)), np.sqrt(sum(steps))]
    for column, values in enumerate(expected):
        assert found.values[:, column] == pytest.approx(values, rel=1e-4)


def test_quantiles_of_small_images_are_exact_and_of_large_ones_near() -> None:
    for side, error in ((8, 8.0), (96, 16.0)):
        images = noise(1, side)
        exact = np.quantile(images.reshape(6, -1), QUANTILES, axis=1).T
        columns = statistics_of(images).values[:, 1 + 1 + 3 + 1 :][:, : len(QUANTILES)]
        assert np.abs(columns - exact).max() < error


def test_a_blurred_image_is_less_sharp_and_as_bright() -> None:
    (image,) = noise(1, 32, 1)
    soft = np.asarray(Image.fromarray(image[0]).filter(ImageFilter.GaussianBlur(1)))
    sharp, blurred = statistics_of(np.stack([image, soft[None]])).values
    assert blurred[0] == pytest.approx(sharp[0], abs=3.0)
    assert blurred[2] < 0.5 * sharp[2]


@pytest.mark.parametrize("side", [4, 5, 7])
def test_the_smallest_images_have_finite_statistics(side: int) -> None:
    assert np.isfinite(statistics_of(noise(3, side)).values).all()
