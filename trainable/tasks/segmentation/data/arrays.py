"""Checks arrays of images with masks, for the npz format and for a person's own arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainable.data.arrays import Arrays, check_images
from trainable.data.part_names import telling_how_to_leave_out
from trainable.data.source import ArraySource, Split
from trainable.errors import DataError
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.code import consecutive
from trainable.tasks.segmentation.data.pairs import Pair, Pairs
from trainable.tasks.segmentation.data.stores import MaskArray, in_bytes


def pairs_of_arrays(
    path: str, format: str, parts: Mapping[Split, Arrays], masks: Masks, classes: Sequence[str] | None = None
) -> Pairs:
    """Return the pairs of arrays: images uint8 [N, H, W] or [N, H, W, 1 or 3], masks of whole numbers or
    truth values [N, H, W] or [N, H, W, 1].

    The classes are the names of the masks' values from 0 on, where a person gives any. Raises DataError for
    arrays of the wrong type or shape, and for values that no byte holds.
    """
    checked = dict[Split, Pair]()
    for part, arrays in parts.items():
        with telling_how_to_leave_out(part):
            checked[part] = _pair(f"{path}: {part}", *arrays, masks)
    return Pairs(path, format, checked, None if classes is None else consecutive(classes))


def _pair(where: str, images: NDArray[Any], masks: NDArray[Any], spec: Masks) -> Pair:
    check_images(where, images)
    if masks.ndim == 4 and masks.shape[-1] == 1:
        masks = masks[..., 0]
    if masks.ndim != 3 or masks.dtype.kind not in "iub":
        got = f"{masks.dtype} {list(masks.shape)}"
        raise DataError(
            f"{where}: masks must be one whole number a pixel, [N, H, W], got {got}; convert them, such as "
            "by masks.astype(np.uint8)"
        )
    if masks.shape != images.shape[:3] or not masks.size:
        raise DataError(
            f"{where}: the images are {list(images.shape)} and the masks {list(masks.shape)}; expected a "
            "mask for each image, of its height and width; save the two arrays from the same images"
        )
    try:
        store = MaskArray(in_bytes(masks, spec.values == "binary"))
    except ValueError as error:
        raise DataError(f"{where}: the array of masks {error}") from None
    return Pair(ArraySource(images, np.zeros(len(images), np.int64)), store, None)
