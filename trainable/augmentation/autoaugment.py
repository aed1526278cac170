"""Applies AutoAugment's learnt policies, drawn for each image of a batch."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from trainable.augmentation.draws import Floats, Integers, integers
from trainable.augmentation.operations import Operation, apply_each, directed
from trainable.augmentation.strengths import narrow_strengths

PolicyName = Literal["imagenet", "cifar10", "svhn"]

BINS = 10
"""Magnitudes go from 0 to 9 (arXiv 1805.09501, section 3)."""

AUTO_AUGMENT_DRAWS = 5
"""An image uses so many numbers: which pair; then for each of the two whether at all, and its direction."""


@dataclass(frozen=True)
class Pairs:
    """Holds a policy: pairs of operations, each with a probability and a magnitude (0 if it has none)."""

    operations: Integers
    """This is [pairs, 2], of values of Operation."""
    probabilities: Floats
    magnitudes: Integers


def auto_augment(images: Tensor, uniform: Floats, policy: PolicyName) -> Tensor:
    """Apply one pair of operations, each by its own chance,
    to each uint8 image [B, C, H, W], C being 1 or 3.

    `uniform` is [B, AUTO_AUGMENT_DRAWS] in [0, 1). Source: arXiv 1805.09501, section 3.
    """
    pairs = learnt_pairs(policy)
    strengths = narrow_strengths(BINS, images.shape[-1])
    drawn = integers(uniform[:, 0], len(pairs.operations))
    for step in (0, 1):
        applied = uniform[:, 1 + 2 * step] < pairs.probabilities[drawn, step]
        chosen = np.where(applied, pairs.operations[drawn, step], int(Operation.IDENTITY))
        amounts = strengths[chosen, pairs.magnitudes[drawn, step]]
        images = apply_each(images, chosen, directed(chosen, amounts, uniform[:, 2 + 2 * step] < 0.5))
    return images


@functools.cache
def learnt_pairs(policy: PolicyName) -> Pairs:
    """Return the 25 pairs found on a data set (arXiv 1805.09501, appendix), as torchvision lists them."""
    from torchvision.transforms import AutoAugment, AutoAugmentPolicy  # seconds to import

    listed = AutoAugment(AutoAugmentPolicy(policy)).policies  # public there, and not in v2
    names = {operation.name.replace("_", "").lower(): operation for operation in Operation}
    return Pairs(
        operations=np.array([[int(names[name.lower()]) for name, _, _ in pair] for pair in listed]),
        probabilities=np.array([[probability for _, probability, _ in pair] for pair in listed]),
        magnitudes=np.array([[magnitude or 0 for _, _, magnitude in pair] for pair in listed]),
    )
