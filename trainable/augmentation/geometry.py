"""Crops, flips and grids: which pixels of a uint8 batch are shown or hidden, each image by its numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from trainable.array_types import Floats, Integers
from trainable.augmentation.draws import integers, on_device, replaced


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


# So many boxes are tried before giving up, as in torchvision's RandomResizedCrop and RandomErasing
TRIES = 10

# A box uses so many numbers: two for its position, then an area and a ratio for each try
BOX_DRAWS = 2 + 2 * TRIES

Range = tuple[float, float]


def crop_boxes(uniform: Floats, height: int, width: int, scale: Range, ratio: Range) -> Integers:
    """Return boxes [B, 4] as torchvision's RandomResizedCrop draws them,
    from `uniform` [B, BOX_DRAWS] in [0, 1).

    The area is uniform in `scale`, a share of the image; width over height is log-uniform in `ratio`. The
    first box that fits is returned, or the largest central one if none does.
    """
    heights, widths = _sides(uniform[:, 2:], height * width, scale, (1 / ratio[1], 1 / ratio[0]))
    fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)
    size, found = _first(heights, widths, fits)
    corner = integers(uniform[:, :2], np.array([height, width]) - size + 1)
    drawn = np.concatenate([corner, size], axis=1)
    return np.where(found[:, None], drawn, _central_box(height, width, ratio))


def erasing_boxes(uniform: Floats, height: int, width: int, area: Range, ratio: Range) -> Integers:
    """Return boxes [B, 4] as torchvision's RandomErasing draws them,
    from `uniform` [B, BOX_DRAWS] in [0, 1).

    The area is uniform in `area`, a share of the image; height over width is log-uniform in `ratio`. The
    first box that is smaller than the image both ways is returned, or an empty one if none is.
    """
    heights, widths = _sides(uniform[:, 2:], height * width, area, ratio)
    size, found = _first(heights, widths, (heights < height) & (widths < width))
    corner = integers(uniform[:, :2], np.array([height, width]) - size + 1)
    return np.where(found[:, None], np.concatenate([corner, size], axis=1), 0)


def _sides(uniform: Floats, area: int, share: Range, ratio: Range) -> tuple[Integers, Integers]:
    """Return heights and widths [B, TRIES] of boxes with shares of the area and ratios of height to
    width."""
    areas = area * (share[0] + uniform[:, 0::2] * (share[1] - share[0]))
    low, high = math.log(ratio[0]), math.log(ratio[1])
    ratios = np.exp(low + uniform[:, 1::2] * (high - low))
    heights, widths = np.sqrt(areas * ratios), np.sqrt(areas / ratios)
    return np.rint(heights).astype(np.int64), np.rint(widths).astype(np.int64)


def _first(
    heights: Integers, widths: Integers, fits: NDArray[np.bool_]
) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the first size that fits [B, 2], or size 0 if none does, and whether one does [B]."""
    rows, first = np.arange(len(fits)), fits.argmax(axis=1)
    size = np.stack([heights[rows, first], widths[rows, first]], axis=1)
    found: NDArray[np.bool_] = fits[rows, first]
    return np.where(found[:, None], size, 0), found


def _central_box(height: int, width: int, ratio: Range) -> Integers:
    """Return the largest central box whose width over height is within `ratio`."""
    box_height, box_width = height, width
    if width / height < ratio[0]:
        box_height = round(width / ratio[0])
    elif width / height > ratio[1]:
        box_width = round(height * ratio[1])
    return np.array([(height - box_height) // 2, (width - box_width) // 2, box_height, box_width])


Mask = NDArray[np.bool_]

GRID_DRAWS = 4  # a GridMask uses so many numbers: its period, its offset down and across, and its angle

CELLS = (0, 16, 32, 44, 56)
CELLS_AT = 224  # Hide-and-Seek's cells for images of 224 pixels, 0 hiding nothing (arXiv 1811.02545)


class Stripes(NamedTuple):
    """The stripes that GridMask leaves visible, one grid an image; each field is [n]."""

    period: Integers
    kept: Integers  # the width of a visible stripe, in pixels
    top: Integers
    left: Integers
    angle: Floats  # the angle is in degrees


def drawn_stripes(
    uniform: Floats, side: int, periods: tuple[float, float], kept: float, rotation: float
) -> Stripes:
    """Draw grids for images of `side` pixels, from `uniform` [n, GRID_DRAWS] in [0, 1).

    The period is a uniform integer between `periods` of the side, both included, and at least 2. The visible
    stripe is `kept` of it, rounded, with at least one pixel visible and one not. The angle is uniform up to
    `rotation`.
    """
    low = max(2, round(periods[0] * side))
    high = max(low, round(periods[1] * side))
    period = low + integers(uniform[:, 0], high - low + 1)
    stripe = np.clip((period * kept + 0.5).astype(np.int64), 1, period - 1)
    top, left = integers(uniform[:, 1], period), integers(uniform[:, 2], period)
    return Stripes(period, stripe, top, left, uniform[:, 3] * rotation)


def between_stripes(stripes: Stripes, height: int, width: int) -> tuple[Mask, Mask]:
    """Return the rows [n, height] and the columns [n, width] outside the stripes:
    pixels where they cross are hidden.

    A pixel is hidden with chance `(1 - kept / period) ** 2` (arXiv 2001.04086, section 3). This is for grids
    without rotation.
    """
    down = _between(np.arange(height), stripes.top, stripes)
    return down, _between(np.arange(width), stripes.left, stripes)


def between_turned_stripes(stripes: Stripes, height: int, width: int, device: torch.device) -> Tensor:
    """Return the pixels, bool [n, height, width],
    in no row stripe and no column stripe of the rotated grids.

    Each pixel's position in its grid is computed, so no larger canvas need be built and cropped.
    """
    numbers = np.stack([*stripes[:4], np.radians(stripes.angle)]).astype(np.float32)
    period, kept, top, left, angle = on_device(numbers, device)[:, :, None, None].unbind(0)
    y = (torch.arange(height, device=device) - (height - 1) / 2)[:, None]
    x = torch.arange(width, device=device) - (width - 1) / 2
    rows = (y * angle.cos() - x * angle.sin() + height / 2).floor_()
    columns = (y * angle.sin() + x * angle.cos() + width / 2).floor_()
    return (rows.sub_(top).remainder_(period) >= kept) & (columns.sub_(left).remainder_(period) >= kept)


def _between(pixels: Integers, offset: Integers, stripes: Stripes) -> Mask:
    return np.asarray((pixels - offset[:, None]) % stripes.period[:, None] >= stripes.kept[:, None])


def cell_sides(side: int) -> Integers:
    """Return Hide-and-Seek's cells for images of `side` pixels:
    rounded, at least one pixel, but 0 stays 0."""
    scaled = np.array(CELLS) * side / CELLS_AT
    return np.where(scaled > 0, np.maximum(1, np.floor(scaled + 0.5)), 0).astype(np.int64)


def in_hidden_cells(cells: Integers, hidden: Tensor, height: int, width: int) -> Tensor:
    """Return the pixels, bool [n, height, width], in a hidden cell; image i has cells of `cells[i]` pixels.

    Cells are counted from the top left corner. `hidden`, bool [n, rows, columns], has at least as many as the
    smallest cells need; those beyond an image's own are not looked at.
    """
    down = on_device(np.arange(height) // cells[:, None], hidden.device)[:, :, None]
    across = on_device(np.arange(width) // cells[:, None], hidden.device)[:, None, :]
    rows = hidden.gather(1, down.expand(-1, -1, hidden.shape[2]))
    return rows.gather(2, across.expand(-1, height, -1))
