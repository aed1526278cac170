"""RandAugment, TrivialAugment and AutoAugment: which operations, and how strong, by torchvision's tables."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, NamedTuple, assert_never

import numpy as np
import torch
from torch import Tensor

from trainable.array_types import Floats, Integers
from trainable.augmentation.draws import integers
from trainable.augmentation.operations import RANDOM, Operation, apply_each, directed


class Most(NamedTuple):
    """What the last bin of a policy means."""

    shear: float  # a slope
    shift: float  # in pixels
    degrees: float
    enhancement: float  # the distance of a factor from 1
    bits: int  # so many bits are taken from a pixel's eight


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
            # how many of 8 bits remain
            return 8.0 - np.rint(np.arange(bins) / ((bins - 1) / most.bits))
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


PolicyName = Literal["imagenet", "cifar10", "svhn"]

AUTO_AUGMENT_BINS = 10  # magnitudes go from 0 to 9 (arXiv 1805.09501, section 3)

# An image uses so many numbers: which pair; then for each of the two whether at all, and its direction
AUTO_AUGMENT_DRAWS = 5


@dataclass(frozen=True)
class OperationPairs:
    """A policy: pairs of operations, each with a probability and a magnitude (0 if it has none)."""

    operations: Integers  # [pairs, 2], of values of Operation
    probabilities: Floats
    magnitudes: Integers


def auto_augment(images: Tensor, uniform: Floats, policy: PolicyName) -> Tensor:
    """Apply one pair of operations, each by its own chance,
    to each uint8 image [B, C, H, W], C being 1 or 3.

    `uniform` is [B, AUTO_AUGMENT_DRAWS] in [0, 1). Source: arXiv 1805.09501, section 3.
    """
    pairs = learnt_pairs(policy)
    strengths = narrow_strengths(AUTO_AUGMENT_BINS, images.shape[-1])
    drawn = integers(uniform[:, 0], len(pairs.operations))
    for step in (0, 1):
        applied = uniform[:, 1 + 2 * step] < pairs.probabilities[drawn, step]
        chosen = np.where(applied, pairs.operations[drawn, step], int(Operation.IDENTITY))
        amounts = strengths[chosen, pairs.magnitudes[drawn, step]]
        images = apply_each(images, chosen, directed(chosen, amounts, uniform[:, 2 + 2 * step] < 0.5))
    return images


@functools.cache
def learnt_pairs(policy: PolicyName) -> OperationPairs:
    """Return the 25 pairs found on a data set (arXiv 1805.09501, appendix), as torchvision lists them."""
    from torchvision.transforms import AutoAugment, AutoAugmentPolicy  # seconds to import

    listed = AutoAugment(AutoAugmentPolicy(policy)).policies  # public there, and not in v2
    names = {operation.name.replace("_", "").lower(): operation for operation in Operation}
    return OperationPairs(
        operations=np.array([[int(names[name.lower()]) for name, _, _ in pair] for pair in listed]),
        probabilities=np.array([[probability for _, probability, _ in pair] for pair in listed]),
        magnitudes=np.array([[magnitude or 0 for _, _, magnitude in pair] for pair in listed]),
    )


RAND_AUGMENT_BINS = 31  # magnitudes go from 0 to 30, as in torchvision's RandAugment


def rand_augment(images: Tensor, uniform: Floats, magnitude: int) -> Tensor:
    """Apply `uniform.shape[1] // 2` random operations to each uint8 image [B, C, H, W], C being 1 or 3.

    `uniform` [B, 2 * operations] holds two numbers in [0, 1) an operation: which one, and its direction.
    Source: arXiv 1909.13719, section 3.
    """
    strengths = narrow_strengths(RAND_AUGMENT_BINS, images.shape[-1])[:, magnitude]
    for column in range(0, uniform.shape[1], 2):
        chosen = integers(uniform[:, column], len(RANDOM))
        amounts = directed(chosen, strengths[chosen], uniform[:, column + 1] < 0.5)
        images = apply_each(images, chosen, amounts)
    return images


TRIVIAL_AUGMENT_BINS = 31  # strengths are drawn evenly from so many, as in torchvision's TrivialAugmentWide

TRIVIAL_AUGMENT_DRAWS = 3  # an image uses so many numbers: which operation, how strong, and its direction


def trivial_augment(images: Tensor, uniform: Floats) -> Tensor:
    """Apply one operation of a random strength to each of the uint8 images [B, C, H, W], C being 1 or 3.

    `uniform` is [B, TRIVIAL_AUGMENT_DRAWS] in [0, 1). Source: arXiv 2103.10158, algorithm 1, wide space.
    """
    chosen = integers(uniform[:, 0], len(RANDOM))
    strengths = wide_strengths(TRIVIAL_AUGMENT_BINS)[chosen, integers(uniform[:, 1], TRIVIAL_AUGMENT_BINS)]
    return apply_each(images, chosen, directed(chosen, strengths, uniform[:, 2] < 0.5))
