"""RandAugment drawn for each image of a batch; images that drew the same operation are changed together."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Iterator
from typing import assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainable.augmentation.draws import Floats, Integers, integers

BINS = 31
"""Strengths go from 0 to 30, as in torchvision's RandAugment."""


class Operation(enum.IntEnum):
    """The operations of RandAugment (arXiv 1909.13719, section 3), in torchvision's order."""

    IDENTITY = 0
    SHEAR_X = 1
    SHEAR_Y = 2
    TRANSLATE_X = 3
    TRANSLATE_Y = 4
    ROTATE = 5
    BRIGHTNESS = 6
    COLOR = 7
    CONTRAST = 8
    SHARPNESS = 9
    POSTERIZE = 10
    SOLARIZE = 11
    AUTO_CONTRAST = 12
    EQUALIZE = 13


def rand_augment(images: Tensor, uniform: Floats, magnitude: int) -> Tensor:
    """`uniform.shape[1] // 2` random operations on each of the uint8 images [B, C, H, W], C being 1 or 3.

    `uniform` [B, 2 * operations] holds two numbers in [0, 1) an operation: which one, and its direction.
    """
    images = images.clone()
    for column in range(0, uniform.shape[1], 2):
        chosen = integers(uniform[:, column], len(Operation))
        negative = uniform[:, column + 1] < 0.5
        for operation, sign, members in _groups(chosen, negative):
            rows = torch.from_numpy(members).to(images.device)
            amount = sign * strength(operation, magnitude, images.shape[-1])
            images.index_copy_(0, rows, apply(operation, images.index_select(0, rows), amount))
    return images


def _groups(chosen: Integers, negative: NDArray[np.bool_]) -> Iterator[tuple[Operation, int, Integers]]:
    """Each (operation, sign) with the images that drew it; only operations with a sign are split by it."""
    for operation in Operation:
        drew = chosen == operation
        groups = {1: drew & ~negative, -1: drew & negative} if operation in SIGNED else {1: drew}
        for sign, members in groups.items():
            if operation is not Operation.IDENTITY and members.any():
                yield operation, sign, np.flatnonzero(members)


SIGNED = frozenset(
    {
        Operation.SHEAR_X,
        Operation.SHEAR_Y,
        Operation.TRANSLATE_X,
        Operation.TRANSLATE_Y,
        Operation.ROTATE,
        Operation.BRIGHTNESS,
        Operation.COLOR,
        Operation.CONTRAST,
        Operation.SHARPNESS,
    }
)
"""The operations that go either way, with equal chance."""


@functools.cache
def strength(operation: Operation, magnitude: int, side: int) -> float:
    """What `magnitude` (0 to 30) means to an operation on an image of `side` pixels, as in torchvision.

    Shears are slopes, translations pixels, rotations degrees, the enhancements a distance from 1, posterising
    the bits kept, solarising a fraction of white; 0 for operations without a strength.
    """
    match operation:
        case Operation.SHEAR_X | Operation.SHEAR_Y:
            return _bin(0.0, 0.3, magnitude)
        case Operation.TRANSLATE_X | Operation.TRANSLATE_Y:
            return _bin(0.0, 150.0 / 331.0 * side, magnitude)
        case Operation.ROTATE:
            return _bin(0.0, 30.0, magnitude)
        case Operation.BRIGHTNESS | Operation.COLOR | Operation.CONTRAST | Operation.SHARPNESS:
            return _bin(0.0, 0.9, magnitude)
        case Operation.POSTERIZE:
            return float(8 - round(4 * magnitude / (BINS - 1)))
        case Operation.SOLARIZE:
            return _bin(1.0, 0.0, magnitude)
        case Operation.IDENTITY | Operation.AUTO_CONTRAST | Operation.EQUALIZE:
            return 0.0
        case _:
            assert_never(operation)


def _bin(low: float, high: float, magnitude: int) -> float:
    """One of BINS steps, in single precision as torchvision rounds them: a pixel more or less hangs on it."""
    return float(torch.linspace(low, high, BINS)[magnitude])


def apply(operation: Operation, images: Tensor, amount: float) -> Tensor:
    """One operation of one signed strength on uint8 images [B, C, H, W]; black fills what moves in."""
    from torchvision.transforms.v2 import functional  # seconds to import: only where it is used

    changed: Tensor
    match operation:
        case Operation.IDENTITY:
            changed = images
        case Operation.SHEAR_X:
            changed = _affine(images, shear=(math.degrees(math.atan(amount)), 0.0), center=[0.0, 0.0])
        case Operation.SHEAR_Y:
            changed = _affine(images, shear=(0.0, math.degrees(math.atan(amount))), center=[0.0, 0.0])
        case Operation.TRANSLATE_X:
            changed = _affine(images, translate=(int(amount), 0))
        case Operation.TRANSLATE_Y:
            changed = _affine(images, translate=(0, int(amount)))
        case Operation.ROTATE:
            changed = functional.rotate(images, angle=amount)
        case Operation.BRIGHTNESS:
            changed = functional.adjust_brightness(images, 1.0 + amount)
        case Operation.COLOR:
            changed = functional.adjust_saturation(images, 1.0 + amount)
        case Operation.CONTRAST:
            changed = functional.adjust_contrast(images, 1.0 + amount)
        case Operation.SHARPNESS:
            changed = functional.adjust_sharpness(images, 1.0 + amount)
        case Operation.POSTERIZE:
            changed = functional.posterize(images, int(amount))
        case Operation.SOLARIZE:
            changed = functional.solarize(images, 255.0 * amount)
        case Operation.AUTO_CONTRAST:
            changed = functional.autocontrast(images)
        case Operation.EQUALIZE:
            changed = functional.equalize(images)
        case _:
            assert_never(operation)
    return changed


def _affine(
    images: Tensor,
    *,
    translate: tuple[int, int] = (0, 0),
    shear: tuple[float, float] = (0.0, 0.0),
    center: list[float] | None = None,
) -> Tensor:
    from torchvision.transforms.v2 import functional

    moved: Tensor = functional.affine(
        images, angle=0.0, translate=list(translate), scale=1.0, shear=list(shear), center=center
    )
    return moved
