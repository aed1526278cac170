"""Draws uniform numbers for an image, as a function of (seed, epoch, stream, index) and of nothing else.

A sequential generator would tie an image's augmentation to the batch it happens to be in. These numbers are
the same for any batch size, micro-batch, rank, device and worker, so that resuming equals never stopping, and
two ranks equal one. Each augmentation has a stream of its own: switching one off does not change the others.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainable.array_types import Floats, Integers

Words = NDArray[np.uint64]

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


class Stream(enum.IntEnum):
    """What random numbers are for. The values are part of every saved run: never change or reuse one."""

    CROP = 1
    HORIZONTAL_FLIP = 2
    VERTICAL_FLIP = 3
    POLICY = 4
    ERASING = 5
    # Never use 6: it seeded torchvision's transforms, which once augmented images in files.
    CUTOUT = 7
    GRID_MASK = 8
    HIDE_AND_SEEK_GRID = 9
    HIDE_AND_SEEK_CELLS = 10
    SIZE = 11


class Draws(NamedTuple):
    """The random numbers of some images in one epoch."""

    seed: int
    epoch: int
    indices: Integers  # [B] positions in the training part

    def uniform(self, stream: Stream, count: int) -> Floats:
        """Return [B, count] numbers in [0, 1), independent between images, epochs, seeds and streams."""
        counters = self.indices[:, None] * count + np.arange(count)
        bits = _splitmix(_key(self.seed, self.epoch, stream), counters.astype(np.uint64))
        return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers(uniform: Floats, bound: Integers | int) -> Integers:
    """Return uniform integers in [0, bound) from uniform numbers in [0, 1), elementwise."""
    return np.floor(uniform * bound).astype(np.int64)


@functools.lru_cache(maxsize=64)
def _key(*parts: int) -> int:
    """Return one number for several; it is cached, as every batch of an epoch asks for the same few."""
    key = 0
    for part in parts:
        key = int(_splitmix((key + part) & _MASK, np.zeros(1, np.uint64))[0])
    return key


def _splitmix(key: int, counters: Words) -> Words:
    """Return SplitMix64's outputs number `counters` (from 0), seeded with `key`.

    Source: Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014, section 4.
    """
    state = np.uint64(key) + (counters + np.uint64(1)) * np.uint64(_GAMMA)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
    return state ^ (state >> np.uint64(31))


# A change maps images [B, C, H, W] and their draws to new images of the same shape and type
Change = Callable[[Tensor, Draws], Tensor]


def on_device(drawn: NDArray[Any], device: torch.device) -> Tensor:
    """Return numbers drawn on the host as a tensor on a device, without waiting for the device."""
    return moved(torch.from_numpy(drawn), device)


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the host on a device, without waiting for the device."""
    if device.type == "cuda":  # from memory that is not pinned, a large copy waits for the device
        tensor = tensor.pin_memory()  # which torch uses again only after the copy
    return tensor.to(device, non_blocking=True)


def replaced(images: Tensor, rows: Integers, others: Tensor) -> Tensor:
    """Return a new batch in which the images at `rows` [n] are `others` [n, C, H, W].

    It selects from both at once: copying by index took three times as long.
    """
    order = np.arange(len(images))
    order[rows] = len(images) + np.arange(len(rows))
    return torch.cat([images, others]).index_select(0, on_device(order, images.device))
