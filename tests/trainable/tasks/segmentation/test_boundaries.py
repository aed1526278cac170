"""Tests the boundary F1 score against distance transforms of one class of one image at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from torch import Tensor

from tests.trainable.training.test_synchronisation import Watch
from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.scores import boundary_f1, disk, edges_of, radius_of

CLASSES = 4
Array = np.ndarray[Any, np.dtype[Any]]


def blobs(images: int, seed: int, ignored: float, height: int = 24, width: int = 33) -> Tensor:
    """Return masks of smooth areas, in which class 2 is rare, with some pixels ignored."""
    random = np.random.default_rng(seed)
    fields = random.normal(size=(images, CLASSES, height, width))
    smooth = ndimage.gaussian_filter(fields, (0, 0, 3, 3))
    smooth[:, 2] -= 0.05
    masks = smooth.argmax(1)
    masks[ndimage.gaussian_filter(random.random(masks.shape), (0, 2, 2)) < 0.35 + 0.1 * ignored] = IGNORED
    return torch.from_numpy(masks)


def boundary(mask: Array, label: int) -> Array:
    """Return the pixels of a class that have a counted neighbour of another class."""
    found = np.zeros(mask.shape, bool)
    for row, column in np.argwhere(mask == label):
        for down, across in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            there = (row + down, column + across)
            inside = all(0 <= place < size for place, size in zip(there, mask.shape, strict=True))
            found[row, column] |= inside and mask[there] not in (label, IGNORED)
    return found


def share_near(edge: Array, other: Array, radius: float) -> float:
    if not edge.any() or not other.any():
        return 0.0
    return float((ndimage.distance_transform_edt(~other)[edge] <= radius).mean())


def expected(predicted: Array, mask: Array, label: int, radius: float) -> float | None:
    """Return the score of a class, or None if it is nowhere."""
    predicted = np.where(mask == IGNORED, IGNORED, predicted)
    there, truly = (predicted == label).any(), (mask == label).any()
    if not there and not truly:
        return None
    edge, true_edge = boundary(predicted, label), boundary(mask, label)
    if there and truly and not edge.any() and not true_edge.any():
        return 1.0
    precision, recall = share_near(edge, true_edge, radius), share_near(true_edge, edge, radius)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@pytest.mark.slow("tries many examples")
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.001, 0.03, 0.05, 0.1]), st.sampled_from([0.0, 1.0]))
def test_scores_equal_those_of_distance_transforms(seed: int, tolerance: float, ignored: float) -> None:
    predicted, masks = blobs(2, seed, 0.0).clamp(max=CLASSES - 1), blobs(2, seed + 1, ignored)
    scores, there = boundary_f1(predicted, masks, CLASSES, tolerance)
    radius = max(1.0, tolerance * math.hypot(24, 33))
    for image in range(2):
        for label in range(CLASSES):
            value = expected(predicted[image].numpy(), masks[image].numpy(), label, radius)
            assert there[image, label].item() == (value is not None)
            assert scores[image, label].item() == pytest.approx(value or 0.0)


def test_a_perfect_prediction_scores_1_for_every_class_that_is_there() -> None:
    masks = blobs(3, 5, 1.0)
    masks[1] = 3
    scores, there = boundary_f1(masks.clamp(max=CLASSES - 1), masks, CLASSES, 0.0075)
    assert there.any(1).all()
    assert torch.equal(scores, there.double())


def test_a_boundary_that_is_moved_further_than_the_tolerance_is_wrong() -> None:
    masks = torch.zeros(1, 40, 40, dtype=torch.int64)
    masks[:, :, 20:] = 1
    for moved, score in ((0, 1.0), (2, 1.0), (3, 0.0)):
        scores, _ = boundary_f1(masks.roll(moved, 2).index_fill(2, torch.arange(moved), 0), masks, 2, 0.04)
        assert scores.tolist() == [[score, score]]  # the radius is 2.26 pixels


def test_the_border_of_an_image_and_of_ignored_pixels_is_no_boundary() -> None:
    mask = torch.tensor([[[0, 0, 0, IGNORED, 1], [0, 0, 0, IGNORED, 1], [0, 2, 0, IGNORED, 1]]])
    found = edges_of(mask)
    assert (found != IGNORED).nonzero().tolist() == [[0, 1, 1], [0, 2, 0], [0, 2, 1], [0, 2, 2]]
    assert found[0, 2].tolist() == [0, 2, 0, IGNORED, IGNORED]


def test_what_is_predicted_for_ignored_pixels_is_not_compared() -> None:
    masks, predicted = blobs(2, 3, 1.0), blobs(2, 4, 0.0).clamp(max=CLASSES - 1)
    other = torch.where(masks == IGNORED, 1, predicted)
    first, second = (boundary_f1(each, masks, CLASSES, 0.02) for each in (predicted, other))
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))


def test_the_tolerance_is_a_share_of_the_diagonal_and_a_pixel_at_least() -> None:
    assert radius_of(torch.zeros(1, 300, 400), 0.0075) == pytest.approx(3.75)
    assert radius_of(torch.zeros(1, 30, 40), 0.0075) == 1.0
    assert sorted(disk(1.0)) == [(-1, 0), (0, -1), (0, 0), (0, 1), (1, 0)]
    assert len(disk(5.0)) == 81  # Gauss's circle problem


def test_nothing_waits_for_the_device() -> None:
    with Watch() as watch:
        boundary_f1(blobs(2, 0, 0.0), blobs(2, 1, 1.0), CLASSES, 0.02)
    assert watch.waited == []
