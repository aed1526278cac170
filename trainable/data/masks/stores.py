"""Reads masks as they are stored: the raw value of each pixel, from files or from an array."""

from __future__ import annotations

import abc
import os
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trainable.data.source import FileSource, Integers, Pixels, open_image
from trainable.files.regular import check_regular

LARGEST = 255
"""A raw value is a byte."""

SPREAD = {"L;2": 85, "L;4": 17}
"""Pillow spreads greys of two and four bits over 0 to 255: these are its factors."""

LOSSY = ("JPEG", "MPO")
MATLAB = ".mat"


class MaskStore(abc.ABC):
    """Provides the masks of a part's images; cheap to make, picklable, and safe to read from several
    threads."""

    @abc.abstractmethod
    def raw(self, index: int) -> Pixels:
        """Returns the raw values of a mask, uint8 [H, W]; nobody writes to them. Raises ValueError for what
        is no mask, and whatever its decoder raises."""

    @abc.abstractmethod
    def name(self, index: int) -> str:
        """Returns a name of the mask for people."""

    @abc.abstractmethod
    def sizes_and_times(self, indices: Integers) -> Integers:
        """Returns each mask's stored size in bytes and time of change in nanoseconds, [n, 2]; 0 for what is
        not known."""

    @abc.abstractmethod
    def __len__(self) -> int: ...


@final
class MaskArray(MaskStore):
    """Holds masks of one size in an array, uint8 [N, H, W]."""

    def __init__(self, masks: Pixels) -> None:
        self.masks = masks

    def raw(self, index: int) -> Pixels:
        mask: Pixels = self.masks[index]
        return mask

    def name(self, index: int) -> str:
        return str(index)

    def sizes_and_times(self, indices: Integers) -> Integers:
        return np.array([(self.masks[:1].nbytes, 0)] * len(indices), np.int64).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self.masks)


@final
class MaskFiles(MaskStore):
    """Reads mask files: images of one channel, or MATLAB files as the Semantic Boundaries Dataset has.

    With `binary`, values are only 0 or not: those that no byte holds become 1.
    """

    def __init__(self, root: str, paths: Sequence[str], binary: bool = False) -> None:
        self.files = FileSource(root, paths, np.zeros(len(paths), np.int64))
        self.binary = binary

    def raw(self, index: int) -> Pixels:
        path = os.path.join(self.files.root, self.files.paths[index])
        if path.endswith(MATLAB):
            return in_bytes(_matlab(path), self.binary)
        with open_image(path) as image:
            return in_bytes(stored_values(image), self.binary)

    def name(self, index: int) -> str:
        return self.files.name(index)

    def sizes_and_times(self, indices: Integers) -> Integers:
        return self.files.sizes_and_times(indices)

    def __len__(self) -> int:
        return len(self.files)


def stored_values(image: Image.Image) -> NDArray[Any]:
    """Returns the numbers that the file has, [H, W]: a palette's indices, 0 and 1 of one bit, greys.

    An orientation in its EXIF data turns no mask, except that of TIFF, where it is part of the format. Raises
    ValueError for several channels, fractions, and JPEG; whatever Pillow raises.
    """
    if image.format in LOSSY:
        raise ValueError("is a JPEG, whose compression changes values; save masks as PNG")
    if image.mode not in ("1", "L", "P", "I") and not image.mode.startswith("I;16"):
        raise ValueError(
            f"has mode {image.mode}; expected a mask of one channel, with the number of a class in each pixel"
        )
    factor = SPREAD.get(_layout_of(image), 1)
    values = np.asarray(image)
    return values if factor == 1 else values // np.uint8(factor)


def in_bytes(values: NDArray[Any], binary: bool) -> Pixels:
    """Returns whole numbers as uint8. Raises ValueError for those below 0 or above 255, unless they only mean
    0 or not."""
    if values.dtype != np.uint8 and (binary or values.dtype == np.bool_):
        values = (values != 0).astype(np.uint8)
    if values.dtype != np.uint8 and (odd := values[(values < 0) | (values > LARGEST)]).size:
        raise ValueError(f"has the value {odd[0]}; expected numbers of classes from 0 to {LARGEST}")
    found: Pixels = values.astype(np.uint8, copy=False)
    return found


def _layout_of(image: Image.Image) -> str:
    """Returns how a pixel lies in the file, in Pillow's words, before it is decoded."""
    tiles = getattr(image, "tile", None)
    arguments = tiles[0][3] if tiles else None
    first = arguments[0] if isinstance(arguments, tuple) and arguments else arguments
    return first if isinstance(first, str) else ""


def _matlab(path: str) -> NDArray[Any]:
    """Returns `GTcls.Segmentation`, as torchvision's SBDataset reads it."""
    from scipy.io import loadmat  # half a second to import: only this data set has such files

    check_regular(path)
    try:
        values: NDArray[Any] = loadmat(path)["GTcls"][0]["Segmentation"][0]
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError("holds no GTcls.Segmentation") from error
    if values.ndim != 2 or values.dtype.kind not in "ui":
        raise ValueError(
            f"GTcls.Segmentation is {values.dtype} {list(values.shape)}; expected numbers [H, W]"
        )
    return values
