"""Draws random boxes for the images of a batch, as torchvision does: (top, left, height, width) in pixels."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trainable.augmentation.draws import Floats, Integers, integers

TRIES = 10
"""So many boxes are tried before giving up, as in torchvision's RandomResizedCrop and RandomErasing."""

BOX_DRAWS = 2 + 2 * TRIES
"""A box uses so many numbers: two for its position, then an area and a ratio for each try."""

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
