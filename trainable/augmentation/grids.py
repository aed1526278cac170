"""Computes which pixels the grids of GridMask and of Hide-and-Seek hide, for many images at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainable.augmentation.change import on_device
from trainable.augmentation.draws import Floats, Integers, integers

Mask = NDArray[np.bool_]

GRID_DRAWS = 4
"""A GridMask uses so many numbers: its period, its offset down and across, and its angle."""

CELLS = (0, 16, 32, 44, 56)
CELLS_AT = 224
"""These are Hide-and-Seek's cells for images of 224 pixels, 0 hiding nothing (arXiv 1811.02545)."""


class Stripes(NamedTuple):
    """Holds the stripes that GridMask leaves visible, one grid an image; each field is [n]."""

    period: Integers
    kept: Integers
    """This is the width of a visible stripe, in pixels."""
    top: Integers
    left: Integers
    angle: Floats
    """The angle is in degrees."""


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
