"""Cuts square windows out of images of different sizes, together with their masks.

The planes of an image [C + 1, h, w] are its channels and then its mask, in which 0 is what counts nowhere. So
whatever comes from outside an image is black and ignored at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from trainable.array_types import Floats, Integers
from trainable.augmentation.draws import Draws, Stream, on_device
from trainable.augmentation.geometry import BOX_DRAWS, crop_boxes
from trainable.recipe.augmentations import Crop, NoCrop, PadCrop, ResizedCrop, ScaledCrop

SCALED_DRAWS = 3  # a scaled window uses so many numbers: two for its position, one for its scale
READ_AT_ONCE = 1 << 24  # pixels of a channel: scaled windows of a batch read a part of their images at a time


@dataclass(frozen=True, eq=False)
class Planes:
    """Images of different sizes with their masks, one after the other."""

    values: Tensor  # the bytes of all planes, uint8 [bytes]
    starts: Integers  # each image's first byte, [N]
    sizes: Integers  # each image's height and width in pixels, [N, 2]
    planes: int  # each image has so many planes, its mask among them

    def image(self, index: int) -> Tensor:
        """Return one image's planes [planes, h, w], a view."""
        height, width = self.sizes[index].tolist()
        start = int(self.starts[index])
        return self.values[start : start + self.planes * height * width].view(self.planes, height, width)


def window_boxes(crop: Crop, draws: Draws, sizes: Integers, side: int) -> Floats:
    """Return what each image's window shows, [B, 4]: top, left, height and width in pixels of the image.

    A window of `side` pixels lies anywhere in an image [h, w] of `sizes` [B, 2]; a smaller image lies
    anywhere in the window. A box may reach beyond its image.
    """
    match crop:
        case NoCrop():
            return _placed(draws.uniform(Stream.CROP, 2), sizes, np.full(len(sizes), float(side)))
        case PadCrop(fraction=fraction):
            border = max(1, round(fraction * side))
            return _placed(draws.uniform(Stream.CROP, 2), sizes, np.full(len(sizes), float(side)), border)
        case ScaledCrop(scale_min=low, scale_max=high):
            uniform = draws.uniform(Stream.CROP, SCALED_DRAWS)
            return _placed(uniform[:, :2], sizes, side / (low + uniform[:, 2] * (high - low)))
        case ResizedCrop():
            return _areas(crop, draws.uniform(Stream.CROP, BOX_DRAWS), sizes)
        case _:
            assert_never(crop)


def _placed(uniform: Floats, sizes: Integers, sides: Floats, border: int = 0) -> Floats:
    """Return square boxes of these sides [B] at whole pixels: anywhere from the image's one end to its
    other, and `border` pixels beyond."""
    spare = np.floor(sizes - sides[:, None])
    low, high = np.minimum(spare, 0.0) - border, np.maximum(spare, 0.0) + border
    corners = low + np.floor(uniform * (high - low + 1.0))
    return np.concatenate([corners, np.repeat(sides[:, None], 2, axis=1)], axis=1)


def _areas(crop: ResizedCrop, uniform: Floats, sizes: Integers) -> Floats:
    """Return boxes of a share of each image's area and of a ratio, as for square images."""
    scale, ratio = (crop.scale_min, crop.scale_max), (crop.ratio_min, crop.ratio_max)
    boxes = np.empty((len(sizes), 4))
    for height, width in np.unique(sizes, axis=0):
        rows = np.flatnonzero((sizes == (height, width)).all(axis=1))
        boxes[rows] = crop_boxes(uniform[rows], int(height), int(width), scale, ratio)
    return boxes


def cut(planes: Planes, chosen: Integers, boxes: Floats, side: int) -> Tensor:
    """Return each chosen image's box as a window, uint8 [B, planes, side, side], on the planes' device.

    Channels are resized by torch's antialiased bilinear filter, as the images that a network is tested on are
    (torch.nn.functional.interpolate); masks take the nearest pixel. A box of `side` whole pixels is copied as
    it is.
    """
    rows = _positions(boxes[:, 0], boxes[:, 2], side)
    columns = _positions(boxes[:, 1], boxes[:, 3], side)
    if (boxes[:, 2:] == side).all() and _are_whole(boxes[:, :2]):
        grid = _grid(planes, chosen, rows, columns)
        return torch.stack([grid.nearest(plane) for plane in range(planes.planes)], 1)
    reach = np.maximum(boxes[:, 2:] / side, 1.0)  # a filter reaches the next position, or the next pixel
    taps = (_taps(rows, reach[:, 0]), _taps(columns, reach[:, 1]))
    at_once = max(1, READ_AT_ONCE // (taps[0] * taps[1]))
    parts = []
    for first in range(0, len(chosen), at_once):
        part = slice(first, first + at_once)
        grid = _grid(planes, chosen[part], rows[part], columns[part])
        filters = grid.filters(reach[part], taps)
        channels = [grid.filtered(plane, filters) for plane in range(planes.planes - 1)]
        parts.append(torch.stack([*channels, grid.nearest(planes.planes - 1)], 1))
    return torch.cat(parts)


def _grid(planes: Planes, chosen: Integers, rows: Floats, columns: Floats) -> _Grid:
    sizes, device = planes.sizes[chosen], planes.values.device
    return _Grid(
        planes.values,
        on_device(planes.starts[chosen], device),
        on_device(sizes[:, 0], device),
        on_device(sizes[:, 1], device),
        on_device(rows, device),
        on_device(columns, device),
    )


def _positions(start: Floats, length: Floats, side: int) -> Floats:
    """Return where the window's pixels [B, side] lie on the image's axis; its own lie at 0, 1, 2, ..."""
    steps = (np.arange(side) + 0.5) / side
    return start[:, None] + length[:, None] * steps - 0.5


def _taps(positions: Floats, reach: Floats) -> int:
    """Return how many pixels of an axis filters around positions [B, side] can need; each `reach` is [B]."""
    return int(np.ceil(positions[:, -1] - positions[:, 0] + 2 * reach).max()) + 1


def _are_whole(positions: Floats) -> bool:
    return bool((positions == np.floor(positions)).all())


@dataclass(frozen=True, eq=False)
class _Grid:
    """Windows at rows [B, side] and columns [B, side] of images that lie behind each other."""

    values: Tensor
    starts: Tensor
    heights: Tensor
    widths: Tensor
    rows: Tensor
    columns: Tensor

    def nearest(self, plane: int) -> Tensor:
        """Return the nearest pixels of a plane, [B, side, side]; 0 outside the image."""
        return self._at(plane, *self._nearest) * self._inside

    def filters(self, reach: Floats, taps: tuple[int, int]) -> tuple[_Filter, _Filter]:
        """Return the filters of rows and of columns, which reach so many pixels, [B, 2]."""
        down, across = on_device(reach, self.values.device).unbind(1)
        return (
            _Filter.of(self.rows, down, self.heights, taps[0]),
            _Filter.of(self.columns, across, self.widths, taps[1]),
        )

    def filtered(self, plane: int, filters: tuple[_Filter, _Filter]) -> Tensor:
        """Return a plane's pixels resized to the windows, uint8 [B, side, side]; 0 outside the image."""
        rows, columns = filters
        pixels = self._at(plane, rows.pixels, columns.pixels).float()
        resized = rows.weights @ pixels @ columns.weights.mT
        return resized.round_().clamp_(0.0, 255.0).to(torch.uint8) * self._inside

    @cached_property
    def _nearest(self) -> tuple[Tensor, Tensor]:
        return (self.rows + 0.5).floor().long(), (self.columns + 0.5).floor().long()

    @cached_property
    def _inside(self) -> Tensor:
        """1 where the nearest pixel is one of the image's, else 0, uint8 [B, side, side]."""
        rows, columns = self._nearest
        down = (rows >= 0) & (rows < self.heights[:, None])
        across = (columns >= 0) & (columns < self.widths[:, None])
        return (down[:, :, None] & across[:, None, :]).to(torch.uint8)

    def _at(self, plane: int, rows: Tensor, columns: Tensor) -> Tensor:
        """Return a plane's pixels at whole rows [B, side] and columns [B, side]; those of its border beyond
        it."""
        heights, widths = self.heights[:, None], self.widths[:, None]
        rows, columns = rows.clamp(min=0).minimum(heights - 1), columns.clamp(min=0).minimum(widths - 1)
        first = (self.starts + plane * self.heights * self.widths)[:, None]
        return self.values[(first + rows * widths)[:, :, None] + columns[:, None, :]]


@dataclass(frozen=True, eq=False)
class _Filter:
    """Weights [B, side, taps] of an axis' pixels [B, taps]; 0 for pixels beyond its image."""

    pixels: Tensor
    weights: Tensor

    @classmethod
    def of(cls, positions: Tensor, reach: Tensor, lengths: Tensor, taps: int) -> _Filter:
        """Return triangles around positions [B, side], each of which ends `reach` [B] pixels away."""
        first = (positions[:, :1] - reach[:, None]).ceil()
        pixels = (first + torch.arange(taps, device=first.device)).long()
        distances = (pixels[:, None, :] - positions[:, :, None]).abs() / reach[:, None, None]
        beyond = (pixels < 0) | (pixels >= lengths[:, None])
        weights = (1.0 - distances).clamp_(min=0.0).masked_fill_(beyond[:, None, :], 0.0)
        return cls(pixels, (weights / weights.sum(-1, keepdim=True).clamp_(min=1e-9)).float())
