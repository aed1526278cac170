"""Mixes each image of a batch with its neighbour, and their masks alike: CutMix and ClassMix."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from trainable.array_types import Floats
from trainable.augmentation.draws import on_device
from trainable.augmentation.mixing import MixingDraw, cut_box, numpy_generator
from trainable.recipe.augmentations import ClassMix, CutMix, MixingOfMasks, NoMixing
from trainable.recipe.tasks import MOST_CLASSES

# A mixing maps (images [B, C, H, W], masks [B, H, W], generator on the CPU) to new images and masks
MaskMixing = Callable[[Tensor, Tensor, torch.Generator], tuple[Tensor, Tensor]]


def make_mask_mixing(spec: MixingOfMasks) -> MaskMixing | None:
    """Return the mixing that a recipe asks for, or None if images stay whole.

    The result takes float images and int64 masks on any device, and draws from a CPU generator, so that the
    draws are the same on every device, and none waits for one. Image i is mixed with image i - 1; with
    `1 - probability` the batch is returned as it is. Every call takes one draw from the generator.
    """
    match spec:
        case NoMixing():
            return None
        case CutMix(alpha=alpha, probability=probability):
            return _mixing(probability, lambda masks, random: in_box(masks, _drawn_box(alpha, random)))
        case ClassMix(probability=probability):
            return _mixing(probability, lambda masks, random: of_half(masks, _drawn_order(masks, random)))
        case _:
            assert_never(spec)


# Returns which pixels of masks [B, H, W] their neighbours are given; bool, of the same shape
Choose = Callable[[Tensor, np.random.Generator], Tensor]


def _mixing(probability: float, choose: Choose) -> MaskMixing:
    def mixed(images: Tensor, masks: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        random = numpy_generator(generator)
        if random.random() >= probability:
            return images, masks
        pasted, others = images.roll(1, 0), masks.roll(1, 0)
        chosen = choose(others, random)
        return torch.where(chosen[:, None], pasted, images), torch.where(chosen, others, masks)

    return mixed


def _drawn_box(alpha: float, random: np.random.Generator) -> MixingDraw:
    return random.beta(alpha, alpha), random.random(), random.random()


def _drawn_order(masks: Tensor, random: np.random.Generator) -> Floats:
    return random.random((len(masks), MOST_CLASSES))


def in_box(masks: Tensor, draw: MixingDraw) -> Tensor:
    """Return the pixels in CutMix's rectangle of `1 - lambda` of the area, the same in every image.

    Its centre is uniform, and what is outside the image is cut off (arXiv 1905.04899, section 3.1; of masks,
    arXiv 1906.01916). What is ignored in it is pasted too, and stays ignored.
    """
    top, bottom, left, right = cut_box(draw, *masks.shape[-2:])
    chosen = torch.zeros_like(masks, dtype=torch.bool)
    chosen[:, top:bottom, left:right] = True
    return chosen


def of_half(masks: Tensor, order: Floats) -> Tensor:
    """Return the pixels of half of the classes that each mask has, rounded down (arXiv 2007.07936, section
    3, and its code), none of them ignored.

    Of the classes that are there, those come first whose numbers in `order` [B, 255] are lowest.
    """
    labels = masks.flatten(1)
    there = torch.zeros(len(masks), MOST_CLASSES + 1, dtype=torch.bool, device=masks.device)
    there.scatter_(1, labels, True)
    there[:, MOST_CLASSES] = False  # ignored pixels
    absent_last = on_device(np.pad(order, ((0, 0), (0, 1))), masks.device).masked_fill(~there, torch.inf)
    places = absent_last.argsort(1).argsort(1)
    chosen = there & (places < there.sum(1, keepdim=True) // 2)
    return chosen.gather(1, labels).view(masks.shape)
