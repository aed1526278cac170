"""Applies RandAugment, drawn for each image of a batch."""

from __future__ import annotations

from torch import Tensor

from trainable.augmentation.draws import Floats, integers
from trainable.augmentation.operations import RANDOM, apply_each, directed
from trainable.augmentation.strengths import narrow_strengths

BINS = 31
"""Magnitudes go from 0 to 30, as in torchvision's RandAugment."""


def rand_augment(images: Tensor, uniform: Floats, magnitude: int) -> Tensor:
    """Apply `uniform.shape[1] // 2` random operations to each uint8 image [B, C, H, W], C being 1 or 3.

    `uniform` [B, 2 * operations] holds two numbers in [0, 1) an operation: which one, and its direction.
    Source: arXiv 1909.13719, section 3.
    """
    strengths = narrow_strengths(BINS, images.shape[-1])[:, magnitude]
    for column in range(0, uniform.shape[1], 2):
        chosen = integers(uniform[:, column], len(RANDOM))
        amounts = directed(chosen, strengths[chosen], uniform[:, column + 1] < 0.5)
        images = apply_each(images, chosen, amounts)
    return images
