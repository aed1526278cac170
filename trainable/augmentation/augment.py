"""The augmentations of a training image, drawn for each image and applied to whole batches.

Pixels are uint8 until they are normalised; crop, flips and policy come before that, erasing after it. What is
random is a function of (seed, epoch, index): see `draws`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from trainable.augmentation.draws import Draws, Floats, Integers, Stream, integers
from trainable.augmentation.randaugment import rand_augment
from trainable.specs.augmentations import Augmentation, NoCrop, NoPolicy, PadCrop, RandAugment, ResizedCrop

Change = Callable[[Tensor, Draws], Tensor]
"""Images [B, C, H, W] and their draws -> images of the same shape and type."""

ERASED_AREA = (0.02, 0.33)
ERASED_RATIO = (0.3, 3.3)
"""Share of the image, and height over width, of what is erased (arXiv 1708.04896; torchvision's defaults)."""

TRIES = 10
"""Boxes tried before giving up, as in torchvision's RandomResizedCrop and RandomErasing."""


def make_augment(spec: Augmentation, flips: Sequence[str], side: int) -> tuple[Change, ...]:
    """The changes, in order, to a uint8 batch [B, C, side, side] before it is normalised."""
    return (*_crop(spec, side), *_flips(spec, flips), *_policy(spec))


def make_erasing(spec: Augmentation) -> tuple[Change, ...]:
    """The changes to a normalised float batch: a rectangle set to 0, the mean of the training images."""
    probability = spec.erasing_probability
    if probability == 0.0:
        return ()

    def erased(images: Tensor, draws: Draws) -> Tensor:
        uniform = draws.uniform(Stream.ERASING, 3 + 2 * TRIES)
        boxes = erasing_boxes(uniform[:, 1:], *images.shape[-2:])
        return erase(images, np.where(uniform[:, :1] < probability, boxes, 0))

    return (erased,)


def make_file_transform(spec: Augmentation, flips: Sequence[str], side: int) -> Callable[[Any], Tensor]:
    """The same augmentations for one image read from a file, as torchvision's v2 transforms.

    Takes an upright PIL image of mode L or RGB (any size for a resized crop, `side` pixels square otherwise)
    and returns uint8 [C, side, side]. They draw from torch's global generator: seed it for every image.
    Erasing is not among them: it follows the normalisation, on the batch.
    """
    from torchvision.transforms import v2

    crop: list[Any]
    match spec.crop:
        case NoCrop():
            crop = []
        case PadCrop(fraction=fraction):
            crop = [v2.RandomCrop(side, padding=padding(fraction, side))]
        case ResizedCrop() as box:
            scale, ratio = (box.scale_min, box.scale_max), (box.ratio_min, box.ratio_max)
            crop = [v2.RandomResizedCrop(side, scale=scale, ratio=ratio)]
        case _:
            assert_never(spec.crop)
    turns = {"horizontal": v2.RandomHorizontalFlip, "vertical": v2.RandomVerticalFlip}
    chain = [*crop, *(turns[flip](spec.flip_probability) for flip in flips), v2.PILToTensor()]
    if isinstance(spec.policy, RandAugment):
        chain.append(v2.RandAugment(spec.policy.num_ops, spec.policy.magnitude))
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
                uniform = draws.uniform(Stream.CROP, 2 + 2 * TRIES)
                return resized_crop(images, crop_boxes(uniform, side, side, scale, ratio))

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

            def augmented(images: Tensor, draws: Draws) -> Tensor:
                return rand_augment(images, draws.uniform(Stream.POLICY, 2 * num_ops), magnitude)

            return (augmented,)
        case _:
            assert_never(spec.policy)


def padding(fraction: float, side: int) -> int:
    """The border in pixels; at least one, or the crop would be none."""
    return max(1, round(fraction * side))


def pad_crop(images: Tensor, offsets: Integers, border: int) -> Tensor:
    """Each image with a border of zeros, cropped back to its size at its own offset.

    `offsets` [B, 2] are rows and columns from 0 to 2 * border, both included.
    """
    height, width = images.shape[-2:]
    windows = pad(images, (border,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    rows, columns = torch.from_numpy(offsets).to(images.device).unbind(1)
    return windows[torch.arange(len(images), device=images.device), :, rows, columns]


def flip(images: Tensor, chosen: NDArray[np.bool_], axis: int) -> Tensor:
    """The batch with the chosen images [B] mirrored: axis -1 swaps left and right, -2 up and down."""
    rows = torch.from_numpy(np.flatnonzero(chosen)).to(images.device)
    return images.index_copy(0, rows, images.index_select(0, rows).flip(axis))


def crop_boxes(
    uniform: Floats, height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> Integers:
    """Boxes [B, 4] (top, left, height, width) drawn as torchvision's RandomResizedCrop does.

    `uniform` [B, 2 + 2 * TRIES] in [0, 1): the place, then an area and a ratio for each try. The area is
    uniform, the ratio log-uniform; the first box that fits is taken, the largest central one if none does.
    """
    heights, widths = _sides(uniform[:, 2:], height * width, scale, (1 / ratio[1], 1 / ratio[0]))
    fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)
    size, found = _first(heights, widths, fits)
    place = integers(uniform[:, :2], np.array([height, width]) - size + 1)
    drawn = np.concatenate([place, size], axis=1)
    return np.where(found[:, None], drawn, _central_box(height, width, ratio))


def erasing_boxes(uniform: Floats, height: int, width: int) -> Integers:
    """Boxes [B, 4] (top, left, height, width) drawn as torchvision's RandomErasing does; empty if none fits.

    `uniform` [B, 2 + 2 * TRIES] in [0, 1): the place, then an area and a ratio for each try.
    """
    heights, widths = _sides(uniform[:, 2:], height * width, ERASED_AREA, ERASED_RATIO)
    size, found = _first(heights, widths, (heights < height) & (widths < width))
    place = integers(uniform[:, :2], np.array([height, width]) - size + 1)
    return np.where(found[:, None], np.concatenate([place, size], axis=1), 0)


def _sides(
    uniform: Floats, area: int, share: tuple[float, float], ratio: tuple[float, float]
) -> tuple[Integers, Integers]:
    """Heights and widths [B, TRIES] of boxes of a share of the area and a ratio of height to width."""
    areas = area * (share[0] + uniform[:, 0::2] * (share[1] - share[0]))
    low, high = math.log(ratio[0]), math.log(ratio[1])
    ratios = np.exp(low + uniform[:, 1::2] * (high - low))
    return np.rint(np.sqrt(areas * ratios)).astype(np.int64), np.rint(np.sqrt(areas / ratios)).astype(
        np.int64
    )


def _first(
    heights: Integers, widths: Integers, fits: NDArray[np.bool_]
) -> tuple[Integers, NDArray[np.bool_]]:
    """The first size that fits [B, 2], and whether there is one [B]; size 0 where there is none."""
    first = fits.argmax(axis=1)[:, None]
    size = np.concatenate([np.take_along_axis(each, first, 1) for each in (heights, widths)], axis=1)
    found: NDArray[np.bool_] = np.asarray(fits.any(axis=1))
    return np.where(found[:, None], size, 0), found


def _central_box(height: int, width: int, ratio: tuple[float, float]) -> Integers:
    """The largest central box whose width over height is within `ratio`: (top, left, height, width)."""
    box_height, box_width = height, width
    if width / height < ratio[0]:
        box_height = round(width / ratio[0])
    elif width / height > ratio[1]:
        box_width = round(height * ratio[1])
    return np.array([(height - box_height) // 2, (width - box_width) // 2, box_height, box_width])


def resized_crop(images: Tensor, boxes: Integers) -> Tensor:
    """Each uint8 image's own box [B, 4] (top, left, height, width), resized bilinearly to the image's size.

    Sampling stays inside the box, as if it had been cut out first (v2.functional.resized_crop without
    antialiasing: a box is never larger than the result, so there is nothing to alias).
    """
    height, width = images.shape[-2:]
    top, left, box_height, box_width = torch.from_numpy(boxes).to(images.device, torch.float32).unbind(1)
    grid = torch.stack(
        [
            _samples(left, box_width, width)[:, None, :].expand(-1, height, -1),
            _samples(top, box_height, height)[:, :, None].expand(-1, -1, width),
        ],
        dim=-1,
    )
    resampled = grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return resampled.round_().to(torch.uint8)


def _samples(start: Tensor, length: Tensor, side: int) -> Tensor:
    """Where `side` samples of [start, start + length) lie, [B, side], in grid_sample's [-1, 1]."""
    steps = torch.arange(side, device=start.device, dtype=torch.float32) + 0.5
    inside = (steps * (length / side)[:, None] - 0.5).clamp_(min=0.0).minimum(length[:, None] - 1.0)
    return (2.0 * (inside + start[:, None]) + 1.0) / side - 1.0


def erase(images: Tensor, boxes: Integers) -> Tensor:
    """Each image with its own box [B, 4] (top, left, height, width) set to 0; an empty box erases none."""
    rows = np.flatnonzero(boxes[:, 2] * boxes[:, 3])
    erased = torch.from_numpy(rows).to(images.device)
    mask = _inside(torch.from_numpy(boxes[rows]).to(images.device), *images.shape[-2:])
    return images.index_copy(0, erased, images.index_select(0, erased).masked_fill_(mask[:, None], 0.0))


def _inside(boxes: Tensor, height: int, width: int) -> Tensor:
    """Which pixels [B, height, width] are in each image's box [B, 4]."""
    top, left, box_height, box_width = boxes[:, :, None].unbind(1)
    rows = torch.arange(height, device=boxes.device)
    columns = torch.arange(width, device=boxes.device)
    down = (rows >= top) & (rows < top + box_height)
    across = (columns >= left) & (columns < left + box_width)
    return down[:, :, None] & across[:, None, :]
