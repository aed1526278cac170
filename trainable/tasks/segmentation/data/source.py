"""Defines the source of images with masks: an image, and the class of each of its pixels."""

from __future__ import annotations

import hashlib
from typing import final

import numpy as np
from PIL import Image

from trainable.data.source import FileSource, Integers, Pixels, Source
from trainable.tasks.segmentation.data.code import MaskCode
from trainable.tasks.segmentation.data.stores import MaskStore


@final
class MaskedSource(Source):
    """Provides images of another source, each with its mask.

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
