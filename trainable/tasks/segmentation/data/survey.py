"""One look at every mask: its size, what it shows, and what is wrong with it; and the strata that follow."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from trainable.array_types import Integers
from trainable.data.decode import CHUNK, Broken
from trainable.data.source import TURNED, Pixels
from trainable.errors import listed
from trainable.tasks.segmentation.data.mask_values import MaskCode
from trainable.tasks.segmentation.data.pairs import PairedSource
from trainable.tasks.segmentation.data.stores import LARGEST, Palette

VALUES_NAMED = 8
DIGEST_BYTES = 16


class RawSurvey(NamedTuple):
    """What the masks of a part have, whatever it means."""

    sizes: Integers  # height and width in pixels, int64 [N, 2]
    values: Integers  # how many pixels have each raw value, int64 [N, 256]
    digests: Pixels  # a digest of the values of all pixels in their places, uint8 [N, 16]
    palettes: Sequence[Palette | None]  # of each mask whose values are indices into one
    # By row, the masks that cannot be read or do not fit their images; they have zeros above
    faults: Mapping[int, Broken]

    def without(self, rows: NDArray[np.bool_]) -> RawSurvey:
        """Return it as if the masks of some rows, [N], showed nothing and had no fault."""
        faults = {row: fault for row, fault in self.faults.items() if not rows[row]}
        return self._replace(values=np.where(rows[:, None], 0, self.values), faults=faults)


def survey(pair: PairedSource, *, foreground: int | None) -> RawSurvey:
    """Read every mask of a part, and the header of every image.

    Of binary masks what counts is where `foreground`, the least value of it, is reached: those of 0 and 255
    have the digests of those of 0 and 1. It is None for masks of several classes. Threads read them, one
    for each processor: decoders release the interpreter's lock.
    """
    count = len(pair.masks)
    sizes, values = np.zeros((count, 2), np.int64), np.zeros((count, LARGEST + 1), np.int64)
    digests = np.zeros((count, DIGEST_BYTES), np.uint8)
    palettes: list[Palette | None] = [None] * count
    one_of_each = dict[Palette | None, Palette | None]()  # most masks have the same

    def look_at(start: int) -> dict[int, Broken]:
        faults = dict[int, Broken]()
        for index in range(start, min(start + CHUNK, count)):
            try:
                mask, palette = _checked(pair, index)
                palettes[index] = one_of_each.setdefault(palette, palette)
                sizes[index], values[index] = mask.shape, count_values(mask)
                shown = mask if foreground is None else (mask >= foreground).astype(np.uint8)
                digests[index] = digest_of(shown)
            except Exception as error:  # as in decode: Pillow's plug-ins raise nearly anything
                faults[index] = Broken(pair.masks.name(index), str(error) or type(error).__name__)
        return faults

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = [*pool.map(look_at, range(0, count, CHUNK))]
    return RawSurvey(
        sizes, values, digests, palettes, {row: fault for some in found for row, fault in some.items()}
    )


def faults_outside(pair: PairedSource, found: RawSurvey, code: MaskCode) -> list[Broken]:
    """Return the masks that have values of no class, with the values."""
    odd = found.values[:, ~code.known]
    numbers = np.flatnonzero(~code.known)
    return [
        Broken(
            pair.masks.name(index),
            f"has pixels of {listed([str(each) for each in numbers[odd[index] > 0]], VALUES_NAMED)}, of "
            f"none of the {len(code.classes)} classes; task.masks.classes names a class for each number "
            "from 0 on, and task.masks.ignore_index a number that counts nowhere",
        )
        for index in np.flatnonzero(odd.any(axis=1)).tolist()
    ]


def digest_of(mask: Pixels) -> Pixels:
    """Return a digest of a mask's values, [H, W], in their places, uint8 [16]."""
    found = hashlib.sha256(mask.tobytes()).digest()
    return np.frombuffer(found[:DIGEST_BYTES], np.uint8)


def count_values(mask: Pixels) -> Integers:
    """Return how many pixels of a mask, uint8 [H, W], have each value, [256].

    Pillow counts several times faster than numpy's bincount, which widens its input to eight bytes a pixel.
    """
    return np.array(Image.fromarray(mask).histogram(), np.int64)


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return the width and height of an image once it is turned as its EXIF orientation says; nothing is
    decoded."""
    if image.format == "TIFF":  # Pillow has turned it
        return image.size
    # The method of PNG images would decode one, to find what may stand behind its pixels.
    orientation = Image.Image.getexif(image).get(ExifTags.Base.Orientation)
    return (image.height, image.width) if orientation in TURNED else image.size


def _checked(pair: PairedSource, index: int) -> tuple[Pixels, Palette | None]:
    """Return a mask as its store reads it. Raises ValueError if its image has another size or does not
    open."""
    mask, palette = pair.masks.read(index)
    height, width = mask.shape
    if not mask.size:
        raise ValueError("has no pixels; expected those of its image")
    try:
        with pair.images.open(index) as image:
            size = upright_size(image)
    except Exception as error:
        raise ValueError(f"its image {pair.images.name(index)} cannot be opened: {error}") from error
    if size != (width, height):
        raise ValueError(
            f"has {width} x {height} pixels, and its image {pair.images.name(index)} {size[0]} x {size[1]} "
            "as it is shown; expected one size: save the mask as its image is shown, without mixing values"
        )
    return mask, palette


Shown = NDArray[np.bool_]  # whether each image shows each class: bool [N, K]

LEAST = 3  # there are so many parts, and each needs an image, or a group, of each stratum


@dataclass(frozen=True)
class Strata:
    """To which stratum an image belongs."""

    order: tuple[int, ...]  # the classes, the rarest first
    numbers: tuple[int, ...]  # the stratum of images whose rarest class is at each position of the order
    named_by: tuple[int, ...]  # the most common class of each stratum

    def labels(self, shown: Shown) -> Integers:
        """Return each image's stratum, [N]. An image that shows nothing belongs to the commonest class."""
        return np.array(self.numbers, np.int64)[_rarest(shown, self.order)]


def strata_of(shown: Shown, units: Integers | None = None) -> Strata:
    """Return the strata of images, each with at least three of them, or of the groups in `units`, [N].

    Classes are rare or common by how many of these images show them. One that is the rarest of too few images
    is joined with the next more common one. There is one stratum if there are too few images for two.
    """
    order = tuple(np.argsort(shown.sum(axis=0), kind="stable").tolist())
    rarest = _rarest(shown, order)
    units = np.arange(len(shown)) if units is None else units
    numbers, named_by, open_units = list[int](), list[int](), set[int]()
    for position, label in enumerate(order):
        open_units |= set(units[rarest == position].tolist())
        numbers.append(len(named_by))
        if len(open_units) >= LEAST:
            named_by.append(label)
            open_units = set()
    last = max(0, len(named_by) - 1)
    return Strata(order, tuple(min(each, last) for each in numbers), (*named_by[:-1], order[-1]))


def _rarest(shown: Shown, order: tuple[int, ...]) -> Integers:
    """Return the position in the order of the rarest class that each image shows, [N]."""
    in_order = shown[:, order]
    return np.where(in_order.any(axis=1), in_order.argmax(axis=1), len(order) - 1)
