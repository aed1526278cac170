"""Tests windows cut out of images of different sizes, with their masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from trainable.augmentation.draws import Draws
from trainable.recipe.augmentations import Crop, NoCrop, PadCrop, ResizedCrop, ScaledCrop
from trainable.tasks.segmentation.windows import Planes, cut, window_boxes

SIZES = np.array([(40, 40), (17, 60), (60, 17), (9, 11)])
SIDE = 24
CROPS: list[Crop] = [NoCrop(), PadCrop(), ResizedCrop(), ScaledCrop()]


def planes(sizes: np.ndarray = SIZES, count: int = 4, seed: int = 0) -> Planes:
    random = np.random.default_rng(seed)
    lengths = sizes.prod(axis=1) * count
    values = random.integers(1, 256, int(lengths.sum()), dtype=np.uint8)
    return Planes(torch.from_numpy(values), np.cumsum([0, *lengths[:-1]]), sizes, count)


def drawn(crop: Crop, repeats: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Return the boxes of many showings of each image, and which image each is of."""
    chosen = np.tile(np.arange(len(SIZES)), repeats)
    return window_boxes(crop, Draws(0, 0, np.arange(len(chosen))), SIZES[chosen], SIDE), chosen


def test_a_box_of_whole_pixels_is_copied_and_black_and_ignored_outside_the_image() -> None:
    held = planes()
    boxes = np.array([[-3.0, 5.0, SIDE, SIDE]])
    window = cut(held, np.array([0]), boxes, SIDE)[0]
    assert torch.equal(window[:, 3:], held.image(0)[:, : SIDE - 3, 5 : 5 + SIDE])
    assert not window[:, :3].any()


@pytest.mark.parametrize("side", [8, 20, 64])
def test_an_image_is_interpolated_as_torch_does_and_its_mask_takes_the_nearest_pixel(side: int) -> None:
    held = planes()
    window = cut(held, np.array([0]), np.array([[0.0, 0.0, 40.0, 40.0]]), side)[0]
    whole = held.image(0)[None].float()
    expected = functional.interpolate(whole[:, :3], size=side, mode="bilinear", antialias=True)[0]
    assert (window[:3].float() - expected).abs().max() <= 0.51
    nearest = functional.interpolate(whole[:, 3:], size=side, mode="nearest-exact")[0]
    assert torch.equal(window[3:].float(), nearest)


def test_a_fine_pattern_that_is_scaled_down_is_grey_and_not_stripes() -> None:
    stripes = np.tile(np.array([0, 255], dtype=np.uint8), (40, 20))
    values = torch.from_numpy(np.stack([stripes, np.ones_like(stripes)]))
    held = Planes(values.flatten(), np.array([0]), np.array([(40, 40)]), 2)
    window = cut(held, np.array([0]), np.array([[0.0, 0.0, 40.0, 40.0]]), 13)[0, 0]
    assert (window[:, 1:-1].float() - 127.5).abs().max() < 16, "where each other pixel was taken: 0 and 255"


def test_windows_are_the_same_however_many_pixels_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    held, (boxes, chosen) = planes(), drawn(ResizedCrop(), repeats=3)
    together = cut(held, chosen, boxes, 9)
    monkeypatch.setattr("trainable.tasks.segmentation.windows.READ_AT_ONCE", 1)
    assert (together.int() - cut(held, chosen, boxes, 9).int()).abs().max() <= 1


def test_windows_do_not_depend_on_the_images_that_are_cut_with_them() -> None:
    held, (boxes, chosen) = planes(), drawn(ScaledCrop(), repeats=3)
    together = cut(held, chosen, boxes, SIDE)
    for row in range(len(chosen)):
        alone = cut(held, chosen[row : row + 1], boxes[row : row + 1], SIDE)[0]
        assert (together[row].int() - alone.int()).abs().max() <= 1  # whole boxes alone are copied
        assert torch.equal(together[row, -1], alone[-1])


def test_without_a_crop_a_window_lies_in_a_larger_image_and_a_smaller_image_in_the_window() -> None:
    boxes, chosen = drawn(NoCrop())
    low, high = np.minimum(SIZES[chosen] - SIDE, 0), np.maximum(SIZES[chosen] - SIDE, 0)
    assert (boxes[:, :2] >= low).all()
    assert (boxes[:, :2] <= high).all()
    assert (boxes[:, 2:] == SIDE).all()
    assert (boxes[chosen == 0, :2].min(), boxes[chosen == 0, :2].max()) == (0, 16), "to both ends of an image"
    assert (boxes[chosen == 3, 0].min(), boxes[chosen == 3, 0].max()) == (-15, 0), "and of a window"


def test_a_padded_crop_reaches_beyond_the_image() -> None:
    boxes, chosen = drawn(PadCrop(fraction=0.25))
    assert boxes[chosen == 0, :2].min() == -6
    assert boxes[chosen == 0, :2].max() == 40 - SIDE + 6


def test_a_scaled_crop_has_the_scales_that_are_asked_for() -> None:
    boxes, _ = drawn(ScaledCrop(scale_min=0.5, scale_max=2.0), repeats=200)
    scales = SIDE / boxes[:, 2]
    assert (boxes[:, 2] == boxes[:, 3]).all()
    assert 0.5 <= scales.min() < 0.52
    assert 1.98 < scales.max() <= 2.0
    assert np.mean(scales) == pytest.approx(1.25, abs=0.05)


def test_a_resized_crop_is_a_share_of_its_image() -> None:
    boxes, chosen = drawn(ResizedCrop(scale_min=0.3, scale_max=0.5))
    shares = boxes[:, 2:].prod(axis=1) / SIZES[chosen].prod(axis=1)
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= SIZES[chosen]).all()
    assert np.median(shares[chosen == 0]) == pytest.approx(0.4, abs=0.08)


@pytest.mark.parametrize("crop", CROPS, ids=lambda each: each.kind)
def test_a_window_is_a_function_of_seed_epoch_and_position(crop: Crop) -> None:
    indices = np.array([3, 1, 2])
    boxes = window_boxes(crop, Draws(5, 2, indices), SIZES[indices], SIDE)
    alone = window_boxes(crop, Draws(5, 2, indices[1:2]), SIZES[indices[1:2]], SIDE)
    np.testing.assert_array_equal(boxes[1:2], alone)
    assert (boxes != window_boxes(crop, Draws(5, 3, indices), SIZES[indices], SIDE)).any()


def test_grey_images_have_two_planes() -> None:
    held = planes(count=2)
    assert cut(held, np.array([1, 2]), np.array([[0.0, 0.0, 30.0, 30.0]] * 2), SIDE).shape == (
        2,
        2,
        SIDE,
        SIDE,
    )
