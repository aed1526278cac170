"""What a policy's magnitude means to an operation: the tables of torchvision's v2, by their formulae."""

from __future__ import annotations

import functools
from typing import assert_never

import numpy as np
import torch

from trainable.augmentation.draws import Floats
from trainable.augmentation.operations import Operation


@functools.cache
def narrow_strengths(bins: int, side: int) -> Floats:
    """RandAugment's and AutoAugment's strengths [operations, bins] for images of `side` pixels."""
    return np.stack([_narrow(operation, bins, side) for operation in Operation])


@functools.cache
def wide_strengths(bins: int) -> Floats:
    """TrivialAugment's strengths [operations, bins], its wide space (arXiv 2103.10158, table 1)."""
    return np.stack([_wide(operation, bins) for operation in Operation])


def _narrow(operation: Operation, bins: int, side: int) -> Floats:
    match operation:
        case Operation.SHEAR_X | Operation.SHEAR_Y:
            return _steps(0.0, 0.3, bins)
        case Operation.TRANSLATE_X | Operation.TRANSLATE_Y:
            return _steps(0.0, 150.0 / 331.0 * side, bins)  # 150 of 331 px in AutoAugment's own code
        case Operation.ROTATE:
            return _steps(0.0, 30.0, bins)
        case Operation.BRIGHTNESS | Operation.COLOR | Operation.CONTRAST | Operation.SHARPNESS:
            return _steps(0.0, 0.9, bins)
        case Operation.POSTERIZE:
            return _bits(4, bins)
        case Operation.SOLARIZE:
            return _steps(1.0, 0.0, bins)
        case Operation.IDENTITY | Operation.AUTO_CONTRAST | Operation.EQUALIZE | Operation.INVERT:
            return np.zeros(bins)
        case _:
            assert_never(operation)


def _wide(operation: Operation, bins: int) -> Floats:
    match operation:
        case Operation.SHEAR_X | Operation.SHEAR_Y:
            return _steps(0.0, 0.99, bins)
        case Operation.TRANSLATE_X | Operation.TRANSLATE_Y:
            return _steps(0.0, 32.0, bins)  # pixels, whatever the side
        case Operation.ROTATE:
            return _steps(0.0, 135.0, bins)
        case Operation.BRIGHTNESS | Operation.COLOR | Operation.CONTRAST | Operation.SHARPNESS:
            return _steps(0.0, 0.99, bins)
        case Operation.POSTERIZE:
            return _bits(6, bins)
        case Operation.SOLARIZE:
            return _steps(1.0, 0.0, bins)
        case Operation.IDENTITY | Operation.AUTO_CONTRAST | Operation.EQUALIZE | Operation.INVERT:
            return np.zeros(bins)
        case _:
            assert_never(operation)


def _steps(low: float, high: float, bins: int) -> Floats:
    """Even steps in single precision, as torchvision rounds them: a pixel more or less hangs on it."""
    return torch.linspace(low, high, bins).numpy().astype(np.float64)


def _bits(lost: int, bins: int) -> Floats:
    """Bits kept of 8, down to `lost` fewer."""
    return 8.0 - np.rint(np.arange(bins) / ((bins - 1) / lost))
