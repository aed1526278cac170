"""Crops and flips a uint8 batch, each image by its own numbers."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from trainable.augmentation.change import on_device, replaced
from trainable.augmentation.draws import Integers


def padding(fraction: float, side: int) -> int:
    """Return the border in pixels: at least one, or the crop would change nothing."""
    return max(1, round(fraction * side))


def pad_crop(images: Tensor, offsets: Integers, border: int) -> Tensor:
    """Add a border of zeros to each image, and crops it back to its size at its own offset.

    `offsets` [B, 2] are rows and columns from 0 to 2 * border, both included.
    """
    count, channels, height, width = images.shape
    padded = pad(images, (border,) * 4).contiguous()
    image, plane, row, _ = padded.stride()
    # `windows` is a view of every window that starts anywhere. Choosing windows copies whole rows: indexing
    # by image, row and column took twice as long (128 x 1 x 28 x 28, one thread; four times with 3 channels).
    last = (channels - 1) * plane + (height - 1) * row + width
    windows = padded.as_strided((padded.numel() - last + 1, channels, height, width), (1, plane, row, 1))
    starts = np.arange(count) * image + offsets @ np.array([row, 1])
    return windows.index_select(0, on_device(starts, images.device))


def flip(images: Tensor, chosen: NDArray[np.bool_], axis: int) -> Tensor:
    """Return the batch with the chosen images [B] mirrored: axis -1 swaps left and right, -2 up and down."""
    rows = np.flatnonzero(chosen)
    mirrored = images.index_select(0, on_device(rows, images.device)).flip(axis)
    return replaced(images, rows, mirrored)


def resized_crop(images: Tensor, boxes: Integers, side: int) -> Tensor:
    """Resize each uint8 image's own box [B, 4] (top, left, height, width) bilinearly to `side` pixels.

    Boxes are in pixels of a square of `side`; the images may be larger squares of the same, in finer detail.
    Sampling stays inside the box, as if it had been cut out first (v2.functional.resized_crop without
    antialiasing: a box is hardly larger than the result, by 8 / 7 at most, so there is little to alias).
    """
    stored = images.shape[-1]
    scaled = (boxes * (stored / side)).astype(np.float32)
    top, left, height, width = on_device(scaled, images.device).unbind(1)
    grid = torch.stack(
        [
            _samples(left, width, side, stored)[:, None, :].expand(-1, side, -1),
            _samples(top, height, side, stored)[:, :, None].expand(-1, -1, side),
        ],
        dim=-1,
    )
    resampled = grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return resampled.round_().to(torch.uint8)


def _samples(start: Tensor, length: Tensor, count: int, side: int) -> Tensor:
    """Return positions [B, count] of samples of [start, start + length) in an image of `side` pixels, in
    grid_sample's [-1, 1]."""
    steps = torch.arange(count, device=start.device, dtype=torch.float32) + 0.5
    inside = (steps * (length / count)[:, None] - 0.5).clamp_(min=0.0).minimum(length[:, None] - 1.0)
    return (2.0 * (inside + start[:, None]) + 1.0) / side - 1.0
