"""Applies TrivialAugment, drawn for each image of a batch."""

from __future__ import annotations

from torch import Tensor

from trainable.augmentation.draws import Floats, integers
from trainable.augmentation.operations import RANDOM, apply_each, directed
from trainable.augmentation.strengths import wide_strengths

BINS = 31
"""Strengths are drawn evenly from so many, as in torchvision's TrivialAugmentWide."""

TRIVIAL_AUGMENT_DRAWS = 3
"""An image uses so many numbers: which operation, how strong, and its direction."""


def trivial_augment(images: Tensor, uniform: Floats) -> Tensor:
    """Apply one operation of a random strength to each of the uint8 images [B, C, H, W], C being 1 or 3.

    `uniform` is [B, TRIVIAL_AUGMENT_DRAWS] in [0, 1). Source: arXiv 2103.10158, algorithm 1, wide space.
    """
    chosen = integers(uniform[:, 0], len(RANDOM))
    strengths = wide_strengths(BINS)[chosen, integers(uniform[:, 1], BINS)]
    return apply_each(images, chosen, directed(chosen, strengths, uniform[:, 2] < 0.5))
