"""Hides pixels of a training image, after it was normalised: they become 0, the training images' mean.

Sizes follow the image's own. Each image draws for itself; all images that are chosen are masked at once.
"""

from __future__ import annotations

from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from trainable.array_types import Floats, Integers
from trainable.augmentation.draws import Change, Draws, Stream, integers, on_device
from trainable.augmentation.geometry import (
    BOX_DRAWS,
    GRID_DRAWS,
    Mask,
    between_stripes,
    between_turned_stripes,
    cell_sides,
    drawn_stripes,
    erasing_boxes,
    in_hidden_cells,
)
from trainable.recipe.augmentations import Cutout, GridMask, HideAndSeek, Masking, NoMasking, RandomErasing


def make_masking(spec: Masking, epochs: int) -> tuple[Change, ...]:
    """Return the changes to a normalised float batch [B, C, H, W] in a run of so many epochs;
    () if nothing hides.

    They return new images, in which only hidden pixels differ.
    """
    match spec:
        case NoMasking():
            return ()
        case RandomErasing():
            change = _erasing(spec)
        case Cutout():
            change = _cutout(spec)
        case GridMask():
            change = _grid_mask(spec, epochs)
        case HideAndSeek():
            change = _hide_and_seek(spec)
        case _:
            assert_never(spec)
    return (change,) if spec.probability > 0.0 else ()


def _erasing(spec: RandomErasing) -> Change:
    area, ratio = (spec.area_min, spec.area_max), (spec.ratio_min, spec.ratio_max)

    def erased(images: Tensor, draws: Draws) -> Tensor:
        uniform = draws.uniform(Stream.ERASING, 1 + BOX_DRAWS)
        height, width = images.shape[-2:]
        boxes = erasing_boxes(uniform[:, 1:], height, width, area, ratio)
        return erase(images, np.where(uniform[:, :1] < spec.probability, boxes, 0))

    return erased


def _cutout(spec: Cutout) -> Change:
    def cut(images: Tensor, draws: Draws) -> Tensor:
        uniform = draws.uniform(Stream.CUTOUT, 3)
        height, width = images.shape[-2:]
        boxes = cutout_boxes(uniform[:, 1:], height, width, max(1, round(spec.side * min(height, width))))
        return erase(images, np.where(uniform[:, :1] < spec.probability, boxes, 0))

    return cut


def _grid_mask(spec: GridMask, epochs: int) -> Change:
    periods = (spec.period_min, spec.period_max)

    def masked(images: Tensor, draws: Draws) -> Tensor:
        height, width = images.shape[-2:]
        uniform = draws.uniform(Stream.GRID_MASK, 1 + GRID_DRAWS)
        hit = uniform[:, :1] < ramped(spec.probability, spec.ramp, draws.epoch, epochs)
        stripes = drawn_stripes(uniform[:, 1:], min(height, width), periods, spec.kept, spec.rotation)
        if spec.rotation == 0.0:
            down, across = between_stripes(stripes, height, width)
            return hide_crossings(images, down & hit, across)
        between = between_turned_stripes(stripes, height, width, images.device)
        return hide(images, between & on_device(hit, images.device)[:, :, None])

    return masked


def _hide_and_seek(spec: HideAndSeek) -> Change:
    def hidden(images: Tensor, draws: Draws) -> Tensor:
        height, width = images.shape[-2:]
        sides = cell_sides(min(height, width))
        grid = integers(draws.uniform(Stream.HIDE_AND_SEEK_GRID, 1)[:, 0], len(sides))
        smallest = int(sides[sides > 0].min())
        shape = (len(images), -(-height // smallest), -(-width // smallest))
        uniform = draws.uniform(Stream.HIDE_AND_SEEK_CELLS, shape[1] * shape[2])
        chosen = (uniform < spec.probability) & (sides[grid] > 0)[:, None]
        cells = np.where(sides[grid] > 0, sides[grid], smallest)
        return hide(
            images, in_hidden_cells(cells, on_device(chosen.reshape(shape), images.device), height, width)
        )

    return hidden


def cutout_boxes(uniform: Floats, height: int, width: int, side: int) -> Integers:
    """Return boxes [B, 4] (top, left, height, width) of `side` pixels, cut off at the border.

    `uniform` [B, 2] in [0, 1) puts the centre on any pixel, with equal chance (arXiv 1708.04552, 3.2).
    """
    image = np.array([height, width])
    first = integers(uniform, image) - side // 2
    start, end = np.maximum(first, 0), np.minimum(first + side, image)
    return np.concatenate([start, end - start], axis=1)


def ramped(probability: float, ramp: float, epoch: int, epochs: int) -> float:
    """Return the chance in an epoch. It rises in a straight line from 0 in the first, and is whole after
    `ramp` of the run."""
    rising = ramp * epochs
    return probability if epoch >= rising else probability * epoch / rising


def erase(images: Tensor, boxes: Integers) -> Tensor:
    """Return each image with its own box [B, 4] (top, left, height, width) set to 0;
    an empty box changes nothing."""
    top, left, box_height, box_width = boxes[:, :, None].transpose(1, 0, 2)
    rows, columns = np.arange(images.shape[-2]), np.arange(images.shape[-1])
    down = (rows >= top) & (rows < top + box_height)
    return hide_crossings(images, down, (columns >= left) & (columns < left + box_width))


def hide_crossings(images: Tensor, down: Mask, across: Mask) -> Tensor:
    """Return the batch with 0 where a chosen row, of `down` [B, H], crosses a chosen column,
    of `across` [B, W]."""
    rows, columns = (on_device(each.astype(np.float32), images.device) for each in (down, across))
    return hide(images, rows[:, :, None] * columns[:, None, :])


def hide(images: Tensor, hidden: Tensor) -> Tensor:
    """Return the batch [B, C, H, W] with 0 where `hidden` [B, H, W], of ones and zeros, is one."""
    # masked_fill with the same mask took four times as long (128 x 1 x 28 x 28, one thread).
    return torch.addcmul(images, images, hidden[:, None].to(images.dtype), value=-1.0)
