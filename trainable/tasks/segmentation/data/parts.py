"""The parts of a data set whose images have masks: planes that lie behind each other, or files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import final

import numpy as np
from PIL import Image

from trainable.array_types import Integers
from trainable.data.arrays import as_tensor
from trainable.data.decode import CHUNK, Broken, Form, resized, to_array, upright
from trainable.data.parts import Part, decoded_squares
from trainable.data.source import FileSource, Pixels, Selection, Source
from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.data.mask_values import MaskCode
from trainable.tasks.segmentation.data.stores import MaskStore


@final
@dataclass(frozen=True, eq=False)
class MaskedPart:
    """Decoded images of different sizes with their masks in memory, one after the other."""

    values: Pixels  # the images' planes, uint8 [bytes]: see `planes_of`
    sizes: Integers
    labels: Integers
    names: tuple[str, ...]  # paths relative to the data set, or numbers

    selection = None

    def name(self, position: int) -> str:
        return self.names[position]

    def squares(self, positions: Integers, form: Form, where: str) -> Pixels:
        planes = image_planes(self, positions, form.channels)
        return np.stack([resized(as_tensor(each[:-1]), form.side, form.interpolation) for each in planes])

    def __len__(self) -> int:
        return len(self.labels)


@final
@dataclass(frozen=True, eq=False)
class MaskedFilePart:
    """Images with masks that are read and decoded each time they are used."""

    selection: Selection
    sizes: Integers

    @property
    def labels(self) -> Integers:
        return self.selection.labels

    def name(self, position: int) -> str:
        return self.selection.name(position)

    def squares(self, positions: Integers, form: Form, where: str) -> Pixels:
        return decoded_squares(self.selection, positions, form, where)

    def __len__(self) -> int:
        return len(self.selection.indices)


def masked(part: Part) -> MaskedPart | MaskedFilePart:
    """Return a part of a segmentation's data set, as what it is. Raises TypeError for other parts."""
    if not isinstance(part, MaskedPart | MaskedFilePart):
        raise TypeError(f"expected a part with masks, got {type(part).__name__}")
    return part


def planes_of(source: MaskedSource, index: int, channels: int) -> Pixels:
    """Return an image's channels and its mask, uint8 [channels + 1, h, w]; in the mask 255 stands for class
    0, 254 for class 1, ..., and 0 for what is ignored.

    Raises whatever Pillow raises.
    """
    with source.open(index) as image:
        pixels = to_array(upright(image, channels))
    return np.concatenate([pixels, IGNORED - source.class_mask(index)[None]])


def starts_of(sizes: Integers, planes: int) -> Integers:
    """Return where each image begins, [N], if images of these sizes [N, 2] lie behind each other."""
    ends = np.cumsum(sizes.prod(axis=1) * planes)
    return np.concatenate([np.zeros(1, np.int64), ends[:-1]])


def image_planes(part: MaskedPart, positions: Integers, channels: int) -> Iterator[Pixels]:
    """Yield the planes [channels + 1, h, w] of images that are in memory; nobody writes to them."""
    starts = starts_of(part.sizes, channels + 1)
    for position in positions.tolist():
        height, width = part.sizes[position].tolist()
        size = (channels + 1) * height * width
        yield part.values[starts[position] : starts[position] + size].reshape(channels + 1, height, width)


def decode_planes(
    source: MaskedSource, indices: Integers, sizes: Integers, channels: int
) -> tuple[Pixels, list[Broken]]:
    """Return the planes of images of these sizes [n, 2], uint8 [bytes], and the images that are broken.

    They are decoded in threads, one for each processor.
    """
    starts = starts_of(sizes, channels + 1)
    values = np.zeros(int(sizes.prod(axis=1).sum()) * (channels + 1), np.uint8)

    def fill(rows: Sequence[int]) -> list[Broken]:
        found = []
        for row in rows:
            try:
                planes = planes_of(source, int(indices[row]), channels)
            except Exception as error:  # as in decode: Pillow raises nearly anything
                found.append(Broken(source.name(int(indices[row])), str(error) or type(error).__name__))
            else:
                values[starts[row] : starts[row] + planes.size] = planes.ravel()
        return found

    chunks = [range(start, min(start + CHUNK, len(indices))) for start in range(0, len(indices), CHUNK)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return values, [fault for faults in pool.map(fill, chunks) for fault in faults]


@final
class MaskedSource(Source):
    """The images of another source, each with its mask.

    Its labels are the strata that a split keeps in proportion (`strata`), not classes.
    """

    def __init__(self, images: Source, masks: MaskStore, code: MaskCode, labels: Integers) -> None:
        self.images = images
        self.masks = masks
        self.code = code
        self.labels = labels
        self.encoded, self.travels = images.encoded, images.travels

    def open(self, index: int) -> Image.Image:
        return self.images.open(index)

    def content(self, index: int) -> bytes:
        return self.images.content(index)

    def class_mask(self, index: int) -> Pixels:
        """Return the class of each pixel, an index into the collection's classes or IGNORED: uint8 [H, W].

        It has the height and width of the upright image. Raises whatever the mask's decoder raises.
        """
        return self.code.class_mask(self.masks.raw(index))

    def digest(self, index: int) -> bytes:
        found = hashlib.blake2b(self.content(index), digest_size=16)
        found.update(np.ascontiguousarray(self.class_mask(index)).tobytes())
        return found.digest()

    @property
    def image_files(self) -> FileSource | None:
        return self.images.image_files

    def name(self, index: int) -> str:
        return self.images.name(index)

    def sizes_and_times(self, indices: Integers) -> Integers:
        """Return the sums of both files' sizes and of their times, [n, 2]: they change when either does."""
        both: Integers = self.images.sizes_and_times(indices) + self.masks.sizes_and_times(indices)
        return np.asarray(both)
