"""Decides the size of a step's images: fixed, drawn again every few steps, or growing with the run."""

from __future__ import annotations

import math
from typing import assert_never

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from trainable.augmentation.draws import Draws, Stream, integers
from trainable.recipe.augmentations import FixedSize, MultiScale, Progressive, SizeSchedule

# Images under so many pixels have sizes in finer steps: one of 32 would be half or all of their own
SMALL = 64

ROUNDING = 1e-9  # a product of floats may differ from a whole number by so much


def size_at(spec: SizeSchedule, side: int, *, seed: int, done: int, steps: int) -> int:
    """Return the side in pixels of a step's images, `side` being the data's own.

    `done` of the run's `steps` steps are done before it. It is a function of its arguments alone: all ranks
    agree, and a resumed run continues as if it had not stopped.
    """
    match spec:
        case FixedSize():
            return side
        case MultiScale(every=every):
            sizes = _choices(spec, side)
            uniform = Draws(seed, 0, np.array([done // every])).uniform(Stream.SIZE, 1)
            return sizes[int(integers(uniform, len(sizes))[0, 0])]
        case Progressive(until=until):
            *growing, last = _choices(spec, side)
            passed = done / (steps * until) + ROUNDING
            return last if passed >= 1.0 else [*growing, last][int(passed * len(growing))]
        case _:
            assert_never(spec)


def extreme_sizes(spec: SizeSchedule, side: int) -> tuple[int, int]:
    """Return the smallest and the largest side in pixels that `size_at` can return."""
    sizes = _choices(spec, side)
    return sizes[0], sizes[-1]


def on_grid(pixels: float, side: int) -> int:
    """Return the allowed size nearest to `pixels` for images of `side`, at least one step of the grid.

    Multiples of 32, the stride of common networks (arXiv 1612.08242, section 2), are allowed; for images
    under 64 pixels multiples of 4.
    """
    grid = _grid(side)
    return max(1, math.floor(pixels / grid + 0.5)) * grid


def resized(images: Tensor, size: int) -> Tensor:
    """Resize float images [B, C, H, W] bilinearly to [B, C, size, size], in the same memory format.

    They are smoothed before they shrink, so that nothing aliases. A batch that has that size is returned
    itself.
    """
    if images.shape[-2:] == (size, size):
        return images
    shrinks = size < max(images.shape[-2:])
    scaled = interpolate(images, size=(size, size), mode="bilinear", align_corners=False, antialias=shrinks)
    return scaled.contiguous(memory_format=_memory_format(images))


def _choices(spec: SizeSchedule, side: int) -> tuple[int, ...]:
    """Return the sizes that a spec allows, rising: at least one."""
    match spec:
        case FixedSize():
            return (side,)
        case MultiScale(smallest=smallest, largest=largest):
            return _multiples(smallest * side, largest * side, _grid(side)) or (side,)
        case Progressive(start=start):
            return (*_multiples(start * side, side - 1, _grid(side)), side)
        case _:
            assert_never(spec)


def _multiples(low: float, high: float, grid: int) -> tuple[int, ...]:
    first, last = math.ceil(low / grid - ROUNDING), math.floor(high / grid + ROUNDING)
    return tuple(count * grid for count in range(max(first, 1), last + 1))


def _grid(side: int) -> int:
    return 4 if side < SMALL else 32


def _memory_format(images: Tensor) -> torch.memory_format:
    channels_last = not images.is_contiguous() and images.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if channels_last else torch.contiguous_format


def of_size(maps: Tensor, size: torch.Size) -> Tensor:
    """Return maps [B, F, h, w] resized bilinearly; those of this size already are returned themselves."""
    if maps.shape[-2:] == size:
        return maps
    return interpolate(maps, size=tuple(size), mode="bilinear", align_corners=False)
