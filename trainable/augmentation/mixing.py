"""Mixes each image of a batch with its neighbour, and their labels alike: mixup and CutMix."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from trainable.recipe.augmentations import CutMix, MixingOfLabels, Mixup, NoMixing

# A mixing maps (images [B, C, H, W], labels [B], classes, generator on the CPU) to images and soft targets
# [B, classes]
LabelMixing = Callable[[Tensor, Tensor, int, torch.Generator], tuple[Tensor, Tensor]]


def make_mixing(spec: MixingOfLabels) -> LabelMixing | None:
    """Return the mixing that a recipe asks for, or None if labels stay whole.

    The result takes float images and int64 labels on any device, draws from a CPU generator (so that the
    draws are the same on every device, and none waits for one), and returns new images with the targets as
    float32 rows that sum to 1. One lambda holds for the batch and image i is mixed with image i - 1, as in
    torchvision's v2.MixUp and v2.CutMix; with `1 - probability` the batch is returned as it is, with one-hot
    targets. Every call takes one draw from the generator.
    """
    match spec:
        case NoMixing():
            return None
        case Mixup(alpha=alpha, probability=probability):
            return _mixing(alpha, probability, mixup)
        case CutMix(alpha=alpha, probability=probability):
            return _mixing(alpha, probability, cutmix)
        case _:
            assert_never(spec)


MixingDraw = tuple[float, float, float]  # a draw is lambda, and a position (x, y) in [0, 1)

Mix = Callable[[Tensor, Tensor, MixingDraw], tuple[Tensor, Tensor]]


def _mixing(alpha: float, probability: float, mix: Mix) -> LabelMixing:
    def mixed(
        images: Tensor, labels: Tensor, classes: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        # torch's one_hot looks at the labels first, which makes the host wait for some devices.
        targets = torch.zeros(len(labels), classes, device=labels.device).scatter_(1, labels[:, None], 1.0)
        random = numpy_generator(generator)
        if random.random() >= probability:
            return images, targets
        return mix(images, targets, (random.beta(alpha, alpha), random.random(), random.random()))

    return mixed


def mixup(images: Tensor, targets: Tensor, draw: MixingDraw) -> tuple[Tensor, Tensor]:
    """Return `lambda x + (1 - lambda) x_neighbour`, for images and targets (arXiv 1710.09412, section 2)."""
    weight = draw[0]
    return _blend(images, weight), _blend(targets, weight)


def cutmix(images: Tensor, targets: Tensor, draw: MixingDraw) -> tuple[Tensor, Tensor]:
    """Paste a rectangle of `1 - lambda` of the area from the neighbour; targets follow the area really
    pasted.

    The rectangle's centre is uniform, and what is outside the image is cut off (arXiv 1905.04899, section
    3.1).
    """
    height, width = images.shape[-2:]
    top, bottom, left, right = cut_box(draw, height, width)
    mixed = images.clone()
    mixed[..., top:bottom, left:right] = images.roll(1, 0)[..., top:bottom, left:right]
    return mixed, _blend(targets, 1.0 - (bottom - top) * (right - left) / (height * width))


def cut_box(draw: MixingDraw, height: int, width: int) -> tuple[int, int, int, int]:
    """Return CutMix's rectangle as (top, bottom, left, right), in pixels."""
    weight, across, down = draw
    half = 0.5 * math.sqrt(1.0 - weight)
    x, half_width = int(across * width), int(half * width)
    y, half_height = int(down * height), int(half * height)
    top, bottom = max(y - half_height, 0), min(y + half_height, height)
    return top, bottom, max(x - half_width, 0), min(x + half_width, width)


def _blend(batch: Tensor, weight: float) -> Tensor:
    return batch.roll(1, 0).mul_(1.0 - weight).add_(batch, alpha=weight)


def numpy_generator(generator: torch.Generator) -> np.random.Generator:
    """Return a generator with a Beta distribution,
    which torch offers only from its global one; takes one draw."""
    return np.random.default_rng(int(torch.randint(2**63 - 1, (), generator=generator)))
