"""Augments training images before they are normalised: drawn for each image, applied to batches.

Pixels are uint8 throughout: crop, then flips, then policy. What hides pixels follows the normalisation: see
`masking`. What is random is a function of (seed, epoch, index): see `draws`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from torch import Tensor

from trainable.array_types import Integers
from trainable.augmentation.draws import Change, Draws, Stream, integers
from trainable.augmentation.geometry import BOX_DRAWS, crop_boxes, flip, pad_crop, padding, resized_crop
from trainable.augmentation.policies import (
    AUTO_AUGMENT_DRAWS,
    TRIVIAL_AUGMENT_DRAWS,
    auto_augment,
    rand_augment,
    trivial_augment,
)
from trainable.recipe.augmentations import (
    Augmentation,
    AutoAugment,
    CropOfLabels,
    NoCrop,
    NoPolicy,
    PadCrop,
    RandAugment,
    ResizedCrop,
    TrivialAugment,
)


def make_augment(spec: Augmentation, flips: Sequence[str], side: int) -> tuple[Change, ...]:
    """Return the changes, in order, to a uint8 batch [B, C, side, side] before it is normalised.

    A resized crop may be given larger squares of the same images, in finer detail.
    """
    assert isinstance(spec.crop, CropOfLabels)  # the recipe has refused others
    return (*_crop(spec.crop, side), *after_crop(spec, flips))


def after_crop(spec: Augmentation, flips: Sequence[str]) -> tuple[Change, ...]:
    """Return the changes, in order, to images that are cropped already: uint8 [B, C, side, side], where the
    last of the C planes may be a mask."""
    return (*_flips(spec, flips), *_policy(spec))


def make_boxes(crop: ResizedCrop, side: int) -> Callable[[Draws], Integers]:
    """Return a function that draws boxes [B, 4] (top, left, height, width) in squares of `side` pixels."""
    scale, ratio = (crop.scale_min, crop.scale_max), (crop.ratio_min, crop.ratio_max)
    return lambda draws: crop_boxes(draws.uniform(Stream.CROP, BOX_DRAWS), side, side, scale, ratio)


def _crop(crop: CropOfLabels, side: int) -> tuple[Change, ...]:
    match crop:
        case NoCrop():
            return ()
        case PadCrop(fraction=fraction):
            border = padding(fraction, side)

            def padded(images: Tensor, draws: Draws) -> Tensor:
                return pad_crop(images, integers(draws.uniform(Stream.CROP, 2), 2 * border + 1), border)

            return (padded,)
        case ResizedCrop():
            boxes = make_boxes(crop, side)
            return (lambda images, draws: resized_crop(images, boxes(draws), side),)
        case _:
            assert_never(crop)


def _flips(spec: Augmentation, flips: Sequence[str]) -> tuple[Change, ...]:
    def turning(stream: Stream, axis: int) -> Change:
        def turned(images: Tensor, draws: Draws) -> Tensor:
            return flip(images, draws.uniform(stream, 1)[:, 0] < spec.flip_probability, axis)

        return turned

    turns = {
        "horizontal": turning(Stream.HORIZONTAL_FLIP, -1),
        "vertical": turning(Stream.VERTICAL_FLIP, -2),
    }
    return tuple(turns[name] for name in flips) if spec.flip_probability > 0.0 else ()


def _policy(spec: Augmentation) -> tuple[Change, ...]:
    match spec.policy:
        case NoPolicy():
            return ()
        case RandAugment(num_ops=num_ops, magnitude=magnitude):
            return (
                lambda images, draws: rand_augment(
                    images, draws.uniform(Stream.POLICY, 2 * num_ops), magnitude
                ),
            )
        case TrivialAugment():
            return (
                lambda images, draws: trivial_augment(
                    images, draws.uniform(Stream.POLICY, TRIVIAL_AUGMENT_DRAWS)
                ),
            )
        case AutoAugment(policy=policy):
            return (
                lambda images, draws: auto_augment(
                    images, draws.uniform(Stream.POLICY, AUTO_AUGMENT_DRAWS), policy
                ),
            )
        case _:
            assert_never(spec.policy)
