"""Compares what exported files answer, from an image's stored bytes on, with what a run answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any

import numpy as np

from trainable.bundle.answering import Answer
from trainable.bundle.predict import stored_pixels
from trainable.bundle.programs import ExportError
from trainable.bundle.whole_images import class_logits
from trainable.data import DataSet, Split
from trainable.data.assembly import stored_parts
from trainable.data.decode import upright
from trainable.data.parts import ArrayPart, FilePart
from trainable.data.source import Integers, Pixels, Selection
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.tasks.kits import kit_of
from trainable.tasks.segmentation.data.parts import MaskedFilePart, MaskedPart, image_planes
from trainable.tasks.segmentation.predicted import KeptMasks

LEAST_SHARE = 0.999
"""A file must have the run's top class for at least this share of the images, or of all pixels of masks."""
AT_ONCE = 32
"""Images of one size that follow each other are answered so many at a time."""


def stored_images(data: DataSet, spec: Data, part: Split, about: dict[str, Any]) -> Iterator[Pixels]:
    """Yield a part's images in its order as `predict.py` decodes them: uint8 [H, W, C], at their own sizes.

    Of images that Python gave as arrays, the squares are all there is.
    """
    held = data.parts[part]
    if isinstance(held, FilePart):
        selection = held.selection
    elif spec.own and isinstance(held, ArrayPart):
        yield from np.moveaxis(held.images, 1, -1)
        return
    else:
        selection = stored_parts(spec)[0][part]
    yield from _decoded(selection, about)


def _decoded(selection: Selection, about: dict[str, Any]) -> Iterator[Pixels]:
    for index in selection.indices.tolist():
        with selection.source.open(index) as image:
            yield stored_pixels(image, about)


def images_of_masks(data: DataSet, recipe: Recipe, part: Split) -> Iterator[Pixels]:
    """Yield a part's images with masks, in its order, as `predict.py` decodes them: uint8 [H, W, C].

    Of images that Python gave as arrays, what is in memory is all there is.
    """
    held = data.parts[part]
    if recipe.data.own and isinstance(held, MaskedPart):
        positions = np.arange(len(held))
        yield from (
            np.moveaxis(each[:-1], 0, -1) for each in image_planes(held, positions, data.info.channels)
        )
        return
    if isinstance(held, MaskedFilePart):
        selection = held.selection
    else:
        selection = kit_of(recipe.task).stored_parts(recipe, download=False)[0][part]
    for index in selection.indices.tolist():
        with selection.source.open(index) as image:
            pixels = np.asarray(upright(image, data.info.channels))
            yield pixels[:, :, None] if pixels.ndim == 2 else pixels


def check_masks(
    file: str, answer: Answer, images: Iterable[Pixels], about: dict[str, Any], expected: KeptMasks
) -> float:
    """Return the share of all pixels for which a file has the run's top class. Raises ExportError if it is
    below LEAST_SHARE."""
    same = pixels = 0
    for position, image in enumerate(images):
        found = class_logits(answer, image, about).argmax(0)
        same += int((found == expected.mask(position)).sum())
        pixels += found.size
    return _checked_share(file, same, pixels, "pixels")


def top_classes(answer: Answer, images: Iterable[Pixels]) -> Integers:
    """Return the likeliest class of each image [H, W, C], int64 [N]; of equals the first."""
    found = [answer(np.stack(batch)).argmax(1) for batch in _batches(images)]
    return np.concatenate(found)


def _batches(images: Iterable[Pixels]) -> Iterator[list[Pixels]]:
    for _, alike in groupby(images, key=np.shape):
        while batch := list(islice(alike, AT_ONCE)):
            yield batch


def check_parity(file: str, predicted: Integers, expected: Integers) -> float:
    """Return the share of images for which a file has the run's top class. Raises ExportError if it is below
    LEAST_SHARE."""
    return _checked_share(file, int((predicted == expected).sum()), len(expected), "images")


def _checked_share(file: str, same: int, count: int, what: str) -> float:
    if same < LEAST_SHARE * count:
        raise ExportError(
            f"{file}: its top class is the run's for {same:,} of {count:,} {what} ({same / count:.2%}), "
            f"expected at least {LEAST_SHARE:.1%}; no bundle is written"
        )
    return same / count
