"""Reads masks as they are stored: the raw value of each pixel, from files or from an array."""

from __future__ import annotations

import abc
import io
import math
import os
import zlib
from collections.abc import Sequence
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trainable.array_types import Integers
from trainable.data.source import FileSource, Pixels, file_content, open_image

LARGEST = 255  # a raw value is a byte

# Pillow spreads greys of two and four bits over 0 to 255: these are its factors
SPREAD = {"L;2": 85, "L;4": 17}

LOSSY = ("JPEG", "MPO")
PLATEAU_FROM = 8  # with fewer values nothing tells a last object from the plateau of soft borders
MATLAB = ".mat"
# A file's first element is after so many bytes; elements of these kinds are an array, or compressed
MATLAB_HEADER, MATLAB_ARRAY, MATLAB_COMPRESSED = 128, 14, 15
# scipy makes arrays of these kinds by the dimensions that they declare. Of structures and objects, the names
# of fields are so many elements behind the dimensions
MATLAB_CELLS, MATLAB_STRUCTURES, MATLAB_OBJECTS, MATLAB_TEXT = 1, 2, 3, 4
MATLAB_FIELDS = {MATLAB_STRUCTURES: 3, MATLAB_OBJECTS: 4}
MATLAB_DIMENSIONS = 32  # scipy reads no more
# Reading an element takes about so much memory besides its data; masks have some hundred elements
MATLAB_ELEMENT_BYTES = 1024
# No mask of the Semantic Boundaries Dataset has a hundredth of so many bytes; a few kilobytes may stand for
# gigabytes
MATLAB_BYTES = 2**26

Palette = bytes  # red, green and blue of each index from 0 on


class MaskStore(abc.ABC):
    """The masks of a part's images; cheap to make, picklable, and safe to read from several threads."""

    @abc.abstractmethod
    def read(self, index: int) -> tuple[Pixels, Palette | None]:
        """Return the raw values of a mask, uint8 [H, W], to which nobody writes, and its palette if they are
        indices into one. Raises ValueError for what is no mask, and whatever its decoder raises."""

    def raw(self, index: int) -> Pixels:
        """Return the raw values alone, as `read` does."""
        return self.read(index)[0]

    @abc.abstractmethod
    def name(self, index: int) -> str:
        """Return a name of the mask for people."""

    @abc.abstractmethod
    def sizes_and_times(self, indices: Integers) -> Integers:
        """Return each mask's stored size in bytes and time of change in nanoseconds, [n, 2]; 0 for what is
        not known."""

    @abc.abstractmethod
    def __len__(self) -> int: ...


@final
class MaskArray(MaskStore):
    """Masks of one size in an array, uint8 [N, H, W]."""

    def __init__(self, masks: Pixels) -> None:
        self.masks = masks

    def read(self, index: int) -> tuple[Pixels, Palette | None]:
        return self.masks[index], None

    def name(self, index: int) -> str:
        return str(index)

    def sizes_and_times(self, indices: Integers) -> Integers:
        return np.array([(self.masks[:1].nbytes, 0)] * len(indices), np.int64).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self.masks)


@final
class MaskFiles(MaskStore):
    """Mask files: images of one channel, or MATLAB files as the Semantic Boundaries Dataset has.

    With `binary`, values are numbers of objects or levels of grey: see `in_bytes`. `lossy` lets JPEGs in, of
    whose values a threshold makes two.
    """

    def __init__(self, root: str, paths: Sequence[str], binary: bool = False, lossy: bool = False) -> None:
        self.files = FileSource(root, paths, np.zeros(len(paths), np.int64))
        self.binary = binary
        self.lossy = lossy

    def read(self, index: int) -> tuple[Pixels, Palette | None]:
        path = os.path.join(self.files.root, self.files.paths[index])
        if path.endswith(MATLAB):
            return in_bytes(_matlab(path), self.binary), None
        with open_image(path) as image:
            values, palette = stored_values(image, self.binary, self.lossy)
        return in_bytes(values, self.binary), palette

    def name(self, index: int) -> str:
        return self.files.name(index)

    def sizes_and_times(self, indices: Integers) -> Integers:
        return self.files.sizes_and_times(indices)

    def __len__(self) -> int:
        return len(self.files)


def stored_values(
    image: Image.Image, binary: bool = False, lossy: bool = False
) -> tuple[NDArray[Any], Palette | None]:
    """Return the numbers that the file has, [H, W], and the palette if they are indices into one; others are
    greys, or False and True of one bit.

    Of `binary` masks a palette of greys means these greys, in whatever order they stand in it, and greys of
    two and four bits are levels of 255.

    An orientation in its EXIF data turns no mask, except that of TIFF, where it is part of the format. Raises
    ValueError for several channels, fractions, and JPEG, unless it may be `lossy`; whatever Pillow raises.
    """
    if image.format in LOSSY and not lossy:
        raise ValueError(
            "is a JPEG, whose compression changes values; save masks as PNG, or set "
            "task.masks.threshold: 128 with task.masks.values: binary"
        )
    if image.mode not in ("1", "L", "P", "I") and not image.mode.startswith("I;16"):
        raise ValueError(
            f"has mode {image.mode}; expected a mask of one channel, with the number of a class in each "
            "pixel: write that number for each colour, as a PNG of mode L"
        )
    factor = 1 if binary else SPREAD.get(_layout_of(image), 1)
    values = np.asarray(image)
    if image.mode == "P":
        palette = bytes(image.getpalette() or [])
        if binary and (greys := _greys(palette, values)) is not None:
            return greys[values], None
        return values, palette
    return values if factor == 1 else values // np.uint8(factor), None


def colours_of(palette: Palette) -> Pixels:
    """Return red, green and blue of each index, uint8 [256, 3]: black where the palette ends before."""
    return np.frombuffer(palette.ljust(3 * (LARGEST + 1), b"\0"), np.uint8).reshape(-1, 3)


def _greys(palette: Palette, indices: NDArray[Any]) -> Pixels | None:
    """The grey of each index, [256], of a palette whose used colours are different greys; where one is used,
    all of them decide, since a mask without an object may show the white of a palette of colours."""
    colours = colours_of(palette)
    used = colours[np.unique(indices)]
    looked_at = used if len(used) > 1 else colours[: len(palette) // 3]
    is_grey = (looked_at == looked_at[:, :1]).all() and len(np.unique(used[:, 0])) == len(used)
    return colours[:, 0] if is_grey else None


def numbers_objects(counts: Integers) -> bool:
    """Whether the values of a mask, of which so many pixels have each, [256], look like the numbers of
    objects, and not like levels of grey.

    Objects are numbered from 1 on without gaps. Greys that happen to leave no gap either reach 255, or most
    of the foreground has the largest of them.
    """
    present = np.flatnonzero(counts[1:]) + 1
    largest = len(present)
    if not largest or present[-1] != largest or largest == LARGEST:
        return False
    return largest < PLATEAU_FROM or 2 * counts[largest] <= counts[1:].sum()


def in_bytes(values: NDArray[Any], binary: bool) -> Pixels:
    """Return whole numbers as uint8, and truth values as 0 and 1. Raises ValueError for those below 0 or
    above 255.

    Of `binary` masks true is 255, as in their files of eight bits. Larger values are allowed there: numbers
    of objects become at most 254, and of other values the upper of sixteen bits is kept; none of them
    becomes 0.
    """
    if values.dtype == np.bool_:
        values = values.astype(np.uint8) * np.uint8(LARGEST if binary else 1)
    if binary and values.dtype != np.uint8 and values.size and values.max() > LARGEST and values.min() >= 0:
        levels = np.unique(values)
        objects = levels[-1] == len(levels) - (levels[0] == 0)  # from 1 on, without gaps
        shown = np.minimum(values, LARGEST - 1) if objects else (values >> 8).clip(values != 0, LARGEST)
        values = shown.astype(np.uint8)
    if values.dtype != np.uint8 and (odd := values[(values < 0) | (values > LARGEST)]).size:
        todo = "numbers of objects need task.masks.values: binary"
        if odd[0] < 0:
            todo = "write pixels that count nowhere as task.masks.ignore_index"
        raise ValueError(f"has the value {odd[0]}; expected numbers of classes from 0 to {LARGEST}; {todo}")
    found: Pixels = values.astype(np.uint8, copy=False)
    return found


def _layout_of(image: Image.Image) -> str:
    """Return how a pixel lies in the file, in Pillow's words, before it is decoded."""
    tiles = getattr(image, "tile", None)
    arguments = tiles[0][3] if tiles else None
    first = arguments[0] if isinstance(arguments, tuple) and arguments else arguments
    return first if isinstance(first, str) else ""


def _matlab(path: str) -> NDArray[Any]:
    """Return `GTcls.Segmentation`, as torchvision's SBDataset reads it."""
    from scipy.io import loadmat  # half a second to import: only this data set has such files

    content = file_content(path)
    try:
        if _unpacks_beyond(content, MATLAB_BYTES):
            raise ValueError(
                f"unpacks to more than {MATLAB_BYTES:,} bytes; expected those of one mask; save it as PNG"
            )
    except zlib.error as error:
        raise ValueError(f"cannot be unpacked: {error}; save it again, or as PNG") from error
    try:
        found = loadmat(io.BytesIO(content), variable_names=["GTcls"])
        values: NDArray[Any] = found["GTcls"][0]["Segmentation"][0]
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(
            "holds no GTcls.Segmentation; expected a file of the Semantic Boundaries Dataset, or a mask as "
            "PNG"
        ) from error
    if values.ndim != 2 or values.dtype.kind not in "ui":
        raise ValueError(
            f"GTcls.Segmentation is {values.dtype} {list(values.shape)}; expected numbers [H, W]; save it "
            "as PNG"
        )
    return values


ByteOrder = Literal["little", "big"]


def _unpacks_beyond(content: bytes, most: int) -> bool:
    """Return whether a MATLAB file (its format of version 5) has more bytes than `most`, with those of its
    compressed variables and of the arrays that are made by the dimensions alone that they declare.

    Nothing beyond `most` is unpacked. Raises zlib.error.
    """
    order: ByteOrder = "little" if content[126:128] == b"IM" else "big"
    at, total = MATLAB_HEADER, len(content)
    while at + 8 <= len(content) and total <= most:
        kind, size = (_whole(content, at + each, order) for each in (0, 4))
        if kind == MATLAB_COMPRESSED:
            unpacked = zlib.decompressobj().decompress(content[at + 8 : at + 8 + size], most + 1)
            total += len(unpacked) + _declared(unpacked, 0, order, most)
        else:
            total += _declared(content, at, order, most)
        at += 8 + size
    return total > most


def _declared(content: bytes, at: int, order: ByteOrder, most: int) -> int:
    """Return about how many bytes reading the elements from a place on takes, besides what is stored of them;
    what is beyond `most` is not looked at.

    It goes from tag to tag as scipy does, which heeds no array's size: so no nested array escapes it.
    """
    total = 0
    while at + 8 <= len(content) and total <= most:
        total += MATLAB_ELEMENT_BYTES
        if _whole(content, at, order) != MATLAB_ARRAY:
            *_, at = _element(content, at, order)
            continue
        if not _whole(content, at + 4, order):  # an empty array has nothing but its tag
            at += 8
            continue
        kind = _whole(content, at + 16, order) & 0xFF  # behind two tags
        first, end, at = _element(content, at + 24, order)
        if kind in (MATLAB_CELLS, MATLAB_STRUCTURES, MATLAB_OBJECTS, MATLAB_TEXT):
            places = range(first, min(end, first + 4 * MATLAB_DIMENSIONS), 4)
            cells = math.prod(abs(_whole(content, each, order, signed=True)) for each in places)
            total += 8 * cells * _most_fields(content, at, order, MATLAB_FIELDS.get(kind, 0))
    return total


def _most_fields(content: bytes, at: int, order: ByteOrder, elements: int) -> int:
    """Return how many fields an array has at most, one a byte of their names, which are so many elements
    further on; 1 if it has none."""
    first = end = at
    for _ in range(elements):
        first, end, at = _element(content, at, order)
    return max(1, end - first)


def _element(content: bytes, at: int, order: ByteOrder) -> tuple[int, int, int]:
    """Return where the data of the element at a place begin and end, and where the next element begins."""
    if small := _whole(content, at, order) >> 16:  # up to four bytes are in the tag itself
        return at + 4, at + 4 + small, at + 8
    end = at + 8 + _whole(content, at + 4, order)
    return at + 8, end, end + (at - end) % 8


def _whole(content: bytes, at: int, order: ByteOrder, *, signed: bool = False) -> int:
    return int.from_bytes(content[at : at + 4], order, signed=signed)
