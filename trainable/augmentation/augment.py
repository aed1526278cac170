"""The augmentations of a training image before it is normalised, drawn for each image, applied to batches.

Pixels are uint8 throughout: crop, then flips, then policy. What hides pixels follows the normalisation: see
`masking`. What is random is a function of (seed, epoch, index): see `draws`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never

from torch import Tensor

from trainable.augmentation.autoaugment import AUTO_AUGMENT_DRAWS, auto_augment
from trainable.augmentation.boxes import BOX_DRAWS, crop_boxes
from trainable.augmentation.change import Change
from trainable.augmentation.draws import Draws, Stream, integers
from trainable.augmentation.geometry import flip, pad_crop, padding, resized_crop
from trainable.augmentation.randaugment import rand_augment
from trainable.augmentation.trivialaugment import TRIVIAL_AUGMENT_DRAWS, trivial_augment
from trainable.recipe.augmentations import (
    Augmentation,
    AutoAugment,
    NoCrop,
    NoPolicy,
    PadCrop,
    RandAugment,
    ResizedCrop,
    TrivialAugment,
)


def make_augment(spec: Augmentation, flips: Sequence[str], side: int) -> tuple[Change, ...]:
    """The changes, in order, to a uint8 batch [B, C, side, side] before it is normalised."""
    return (*_crop(spec, side), *_flips(spec, flips), *_policy(spec))


def make_file_transform(spec: Augmentation, flips: Sequence[str], side: int) -> Callable[[Any], Tensor]:
    """The same augmentations for one image read from a file, in the same order, as torchvision's v2.

    Takes an upright PIL image of mode L or RGB (any size for a resized crop, `side` pixels square otherwise)
    and returns uint8 [C, side, side]. They draw from torch's global generator: seed it for every image.
    Masking is not among them: it follows the normalisation, on the batch.
    """
    from torchvision.transforms import v2  # seconds to import: only where it is used

    turns = {"horizontal": v2.RandomHorizontalFlip, "vertical": v2.RandomVerticalFlip}
    turned = [turns[flip](spec.flip_probability) for flip in flips]
    chain = [*_file_crop(spec, side), *turned, v2.PILToTensor(), *_file_policy(spec)]
    transform: Callable[[Any], Tensor] = v2.Compose(chain)
    return transform


def _crop(spec: Augmentation, side: int) -> tuple[Change, ...]:
    match spec.crop:
        case NoCrop():
            return ()
        case PadCrop(fraction=fraction):
            border = padding(fraction, side)

            def padded(images: Tensor, draws: Draws) -> Tensor:
                return pad_crop(images, integers(draws.uniform(Stream.CROP, 2), 2 * border + 1), border)

            return (padded,)
        case ResizedCrop() as box:
            scale, ratio = (box.scale_min, box.scale_max), (box.ratio_min, box.ratio_max)

            def resized(images: Tensor, draws: Draws) -> Tensor:
                boxes = crop_boxes(draws.uniform(Stream.CROP, BOX_DRAWS), side, side, scale, ratio)
                return resized_crop(images, boxes)

            return (resized,)
        case _:
            assert_never(spec.crop)


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


def _file_crop(spec: Augmentation, side: int) -> list[Any]:
    from torchvision.transforms import v2

    match spec.crop:
        case NoCrop():
            return []
        case PadCrop(fraction=fraction):
            return [v2.RandomCrop(side, padding=padding(fraction, side))]
        case ResizedCrop() as box:
            scale, ratio = (box.scale_min, box.scale_max), (box.ratio_min, box.ratio_max)
            return [v2.RandomResizedCrop(side, scale=scale, ratio=ratio)]
        case _:
            assert_never(spec.crop)


def _file_policy(spec: Augmentation) -> list[Any]:
    from torchvision.transforms import v2

    match spec.policy:
        case NoPolicy():
            return []
        case RandAugment(num_ops=num_ops, magnitude=magnitude):
            return [v2.RandAugment(num_ops, magnitude)]
        case TrivialAugment():
            return [v2.TrivialAugmentWide()]
        case AutoAugment(policy=policy):
            return [v2.AutoAugment(v2.AutoAugmentPolicy(policy))]
        case _:
            assert_never(spec.policy)
