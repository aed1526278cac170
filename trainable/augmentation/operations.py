"""Applies the operations of the learnt and random policies to uint8 batches,
each image with its own strength.

torchvision's v2 changes a batch by one strength. Here images that drew the same operation are changed
together whatever their strengths, with the result that torchvision gives for each of them.
"""

from __future__ import annotations

import enum
from typing import assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import grid_sample

from trainable.array_types import Floats, Integers
from trainable.augmentation.draws import on_device, replaced


class Operation(enum.IntEnum):
    """One of RandAugment's operations (arXiv 1909.13719, section 3), in torchvision's order, or AutoAugment's
    inversion.

    AutoAugment's are all but the identity (arXiv 1805.09501, table 6), without its pairing of samples.
    """

    IDENTITY = 0
    SHEAR_X = 1
    SHEAR_Y = 2
    TRANSLATE_X = 3
    TRANSLATE_Y = 4
    ROTATE = 5
    BRIGHTNESS = 6
    COLOR = 7
    CONTRAST = 8
    SHARPNESS = 9
    POSTERIZE = 10
    SOLARIZE = 11
    AUTO_CONTRAST = 12
    EQUALIZE = 13
    INVERT = 14


# RandAugment and TrivialAugment draw from these
RANDOM = tuple(operation for operation in Operation if operation is not Operation.INVERT)

# These operations go in either direction, with equal chance
SIGNED = frozenset(Operation(value) for value in range(Operation.SHEAR_X, Operation.POSTERIZE))

# These operations take pixels from elsewhere
MOVING = tuple(Operation(value) for value in range(Operation.SHEAR_X, Operation.BRIGHTNESS))

# Images that drew operations of one group are changed together; the identity is in none
GROUPS = (MOVING, *((Operation(value),) for value in range(Operation.BRIGHTNESS, len(Operation))))

WITH_MASK = (2, 4)  # grey and coloured images have so many planes if their mask is behind them

_SIGNED = np.array([operation in SIGNED for operation in Operation])


def directed(chosen: Integers, strengths: Floats, negative: NDArray[np.bool_]) -> Floats:
    """Return strengths [B], negative where `negative` says so and the operation has a direction."""
    return np.where(negative & _SIGNED[chosen], -strengths, strengths)


def apply_each(images: Tensor, chosen: Integers, amounts: Floats) -> Tensor:
    """Return new images [B, C, H, W], each changed by its own operation and signed amount, both [B]."""
    rows, changed = [], []
    for operations in GROUPS:
        members = np.flatnonzero(np.isin(chosen, operations))
        if len(members):
            drew = images.index_select(0, on_device(members, images.device))
            rows.append(members)
            if operations == MOVING:
                matrices = _matrices_of_each(chosen[members], amounts[members], *images.shape[-2:])
                changed.append(_moved(drew, matrices))
            else:
                changed.append(apply(operations[0], drew, amounts[members]))
    return replaced(images, np.concatenate(rows), torch.cat(changed)) if rows else images.clone()


def apply(operation: Operation, images: Tensor, amounts: Floats) -> Tensor:
    """Apply one operation to uint8 images [B, C, H, W], C being 1 or 3, by signed amounts [B];
    empty pixels are black.

    With C 2 or 4 the last plane is a mask: it moves with the image, and keeps its values otherwise.

    Amounts of shears are slopes, of translations pixels, of rotations degrees, of enhancements what is added
    to a factor of 1, of posterising the bits that remain, of solarising a fraction of white; others have
    none.
    """
    from torchvision.transforms.v2 import functional  # seconds to import: only where it is used

    if images.shape[1] in WITH_MASK and operation not in MOVING:
        return torch.cat([apply(operation, images[:, :-1], amounts), images[:, -1:]], 1)
    changed: Tensor
    match operation:
        case Operation.IDENTITY:
            changed = images
        case Operation.SHEAR_X | Operation.SHEAR_Y | Operation.TRANSLATE_X | Operation.TRANSLATE_Y:
            changed = _moved(images, _matrices(operation, amounts, *images.shape[-2:]))
        case Operation.ROTATE:
            changed = _moved(images, _matrices(operation, amounts, *images.shape[-2:]))
        case Operation.BRIGHTNESS:
            changed = _bytes(images * _per_image(1.0 + amounts, images))
        case Operation.COLOR:
            changed = images if images.shape[1] == 1 else _blended(images, _grey(images), amounts)
        case Operation.CONTRAST:
            changed = _blended(images, _grey(images).mean((1, 2, 3), keepdim=True), amounts)
        case Operation.SHARPNESS:
            changed = _sharpened(images, amounts)
        case Operation.POSTERIZE:
            masks = 256 - 2 ** (8 - amounts.astype(np.int64))
            changed = images & _per_image(masks.astype(np.uint8), images)
        case Operation.SOLARIZE:
            changed = torch.where(images >= _per_image(255.0 * amounts, images), 255 - images, images)
        case Operation.AUTO_CONTRAST:
            changed = functional.autocontrast(images)
        case Operation.EQUALIZE:
            changed = functional.equalize(images)
        case Operation.INVERT:
            changed = 255 - images
        case _:
            assert_never(operation)
    return changed


def _per_image(values: NDArray[np.float64] | NDArray[np.uint8], images: Tensor) -> Tensor:
    """Return values [B] as [B, 1, 1, 1] on the images' device; numbers in the single precision of pixels."""
    narrow = values.astype(np.float32) if values.dtype == np.float64 else values
    return on_device(narrow, images.device).view(-1, 1, 1, 1)


def _bytes(images: Tensor) -> Tensor:
    return images.clamp_(0.0, 255.0).to(torch.uint8)


def _grey(images: Tensor) -> Tensor:
    """Return the images' luma (ITU-R 601-2, as in PIL), float32 [B, 1, H, W] in whole grey levels."""
    if images.shape[1] == 1:
        return images.float()
    red, green, blue = (images[:, channel : channel + 1] for channel in range(3))
    return red.mul(0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114).floor_()


def _blended(images: Tensor, other: Tensor, amounts: Floats) -> Tensor:
    """Blend a share 1 + amount of `images` with -amount of `other`: a positive amount moves away from
    `other`."""
    kept, rest = _per_image(1.0 + amounts, images), _per_image(-amounts, images)
    return _bytes(torch.addcmul(images * kept, rest, other))


def _sharpened(images: Tensor, amounts: Floats) -> Tensor:
    """Blend the images with themselves smoothed (1s around a 5, over 13, as in PIL); their rim does not
    change."""
    channels, height, width = images.shape[1:]
    if height <= 2 or width <= 2:
        return images
    sharp = images.float()
    kernel = torch.full((channels, 1, 3, 3), 1.0 / 13.0, device=images.device)
    kernel[:, :, 1, 1] = 5.0 / 13.0
    smooth = torch.nn.functional.conv2d(sharp, kernel, groups=channels).round_()
    inner = sharp[..., 1:-1, 1:-1]
    inner.addcmul_(smooth.sub_(inner), _per_image(-amounts, images))
    return _bytes(sharp)


def _matrices(operation: Operation, amounts: Floats, height: int, width: int) -> Floats:
    """Return matrices [B, 2, 3] from (x, y, 1) of a pixel, in pixels from the centre,
    to the (x, y) it comes from."""
    matrices = np.tile(np.eye(2, 3), (len(amounts), 1, 1))
    match operation:
        case Operation.SHEAR_X:  # about the top left corner, as in torchvision and AutoAugment's own code
            matrices[:, 0, 1], matrices[:, 0, 2] = amounts, amounts * height / 2
        case Operation.SHEAR_Y:
            matrices[:, 1, 0], matrices[:, 1, 2] = amounts, amounts * width / 2
        case Operation.TRANSLATE_X:
            matrices[:, 0, 2] = -np.trunc(amounts)
        case Operation.TRANSLATE_Y:
            matrices[:, 1, 2] = -np.trunc(amounts)
        case Operation.ROTATE:
            cosines, sines = np.cos(np.radians(amounts)), np.sin(np.radians(amounts))
            matrices[:, 0, 0], matrices[:, 0, 1] = cosines, -sines
            matrices[:, 1, 0], matrices[:, 1, 1] = sines, cosines
        case _:
            raise ValueError(f"{operation.name} moves nothing")
    return matrices


def _matrices_of_each(chosen: Integers, amounts: Floats, height: int, width: int) -> Floats:
    matrices = np.empty((len(chosen), 2, 3))
    for operation in MOVING:
        members = chosen == operation
        matrices[members] = _matrices(operation, amounts[members], height, width)
    return matrices


def _moved(images: Tensor, matrices: Floats) -> Tensor:
    """Fetch each image's nearest pixels from where its own matrix [B, 2, 3] points; others are black."""
    count, _, height, width = images.shape
    across = torch.arange(width, device=images.device) - (width - 1) / 2
    down = torch.arange(height, device=images.device) - (height - 1) / 2
    points = torch.stack(
        [
            across.expand(height, -1),
            down[:, None].expand(-1, width),
            torch.ones_like(across).expand(height, -1),
        ],
        dim=-1,
    )
    halves = np.array([[width / 2], [height / 2]], np.float32)
    thetas = on_device(matrices.astype(np.float32) / halves, images.device).transpose(1, 2)
    grid = points.view(1, -1, 3).expand(count, -1, -1).bmm(thetas).view(count, height, width, 2)
    fetched = grid_sample(images.float(), grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return fetched.round_().to(torch.uint8)
