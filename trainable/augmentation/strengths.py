"""Translates a policy's magnitude for each operation: the tables of torchvision's v2, by their formulae."""

from __future__ import annotations

import functools
from typing import NamedTuple, assert_never

import numpy as np
import torch

from trainable.augmentation.draws import Floats
from trainable.augmentation.operations import Operation


class Most(NamedTuple):
    """Holds what the last bin of a policy means."""

    shear: float
    """This is a slope."""
    shift: float
    """This is in pixels."""
    degrees: float
    enhancement: float
    """This is the distance of a factor from 1."""
    bits: int
    """So many bits are taken from a pixel's eight."""


@functools.cache
def narrow_strengths(bins: int, side: int) -> Floats:
    """Return RandAugment's and AutoAugment's strengths [operations, bins] for images of `side` pixels."""
    shift = 150.0 / 331.0 * side  # 150 of 331 px in AutoAugment's own code
    return _strengths(Most(shear=0.3, shift=shift, degrees=30.0, enhancement=0.9, bits=4), bins)


@functools.cache
def wide_strengths(bins: int) -> Floats:
    """Return TrivialAugment's strengths [operations, bins], its wide space (arXiv 2103.10158, table 1)."""
    most = Most(shear=0.99, shift=32.0, degrees=135.0, enhancement=0.99, bits=6)  # pixels, whatever the side
    return _strengths(most, bins)


def _strengths(most: Most, bins: int) -> Floats:
    return np.stack([_of(operation, most, bins) for operation in Operation])


def _of(operation: Operation, most: Most, bins: int) -> Floats:
    match operation:
        case Operation.SHEAR_X | Operation.SHEAR_Y:
            return _steps(0.0, most.shear, bins)
        case Operation.TRANSLATE_X | Operation.TRANSLATE_Y:
            return _steps(0.0, most.shift, bins)
        case Operation.ROTATE:
            return _steps(0.0, most.degrees, bins)
        case Operation.BRIGHTNESS | Operation.COLOR | Operation.CONTRAST | Operation.SHARPNESS:
            return _steps(0.0, most.enhancement, bins)
        case Operation.POSTERIZE:
            return _bits(most.bits, bins)
        case Operation.SOLARIZE:
            return _steps(1.0, 0.0, bins)
        case Operation.IDENTITY | Operation.AUTO_CONTRAST | Operation.EQUALIZE | Operation.INVERT:
            return np.zeros(bins)
        case _:
            assert_never(operation)


def _steps(low: float, high: float, bins: int) -> Floats:
    """Return even steps in single precision, as torchvision rounds them:
    a pixel more or less depends on it."""
    return torch.linspace(low, high, bins).numpy().astype(np.float64)


def _bits(lost: int, bins: int) -> Floats:
    """Return how many of 8 bits remain, down to `lost` fewer."""
    return 8.0 - np.rint(np.arange(bins) / ((bins - 1) / lost))
