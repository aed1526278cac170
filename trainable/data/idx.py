"""Reads IDX files, gzipped or not, named like MNIST's: `train-images-idx3-ubyte.gz`,
`t10k-labels-idx1-ubyte`, ...

The format (http://yann.lecun.com/exdb/mnist/) is two zero bytes, the element type, the number of dimensions,
the dimensions as big-endian 32-bit integers, and the elements.
"""

from __future__ import annotations

import gzip
import math
import re
import struct
import zlib
from collections.abc import Container
from gzip import GzipFile
from io import BufferedReader
from pathlib import Path

import numpy as np

from trainable.data.arrays import Arrays, check_fits, collect
from trainable.data.part_names import telling_how_to_leave_out
from trainable.data.source import Collection, Pixels, Split
from trainable.errors import DataError
from trainable.files.regular import check_regular, why

NAME = re.compile(r"(train|val|validation|t10k|test)-(images|labels)[-.]idx\d-ubyte(\.gz)?", re.IGNORECASE)
PARTS: dict[str, Split] = {
    **{"train": "train", "val": "validation", "validation": "validation"},
    **{"t10k": "test", "test": "test"},
}
UNSIGNED_BYTE = 0x08
MOST_DIMENSIONS = 4
"""Images in colour have four: number, height, width, channel."""


def is_idx_folder(folder: Path) -> bool:
    """Return whether the folder has files named like MNIST's."""
    return any(NAME.fullmatch(entry.name) for entry in folder.iterdir())


def read(folder: Path, left_out: Container[Split] = ()) -> Collection:
    """Return the collection in the folder's IDX files. `t10k` is the test part. Raises DataError."""
    files = _files(folder)
    parts: dict[Split, Arrays] = {}
    for part in sorted({part for part, _ in files if part not in left_out}):
        with telling_how_to_leave_out(part):
            for kind in ("images", "labels"):
                if (part, kind) not in files:
                    raise DataError(f"{folder}: there is no file of {kind} for the {part} part")
            parts[part] = (read_file(files[part, "images"]), read_file(files[part, "labels"]))
    if "train" not in parts:
        raise DataError(f"{folder}: expected train-images-idx3-ubyte and train-labels-idx1-ubyte (.gz)")
    return collect(str(folder), "idx", parts)


def read_file(path: Path) -> Pixels:
    """Return the array in one file, uint8.
    Raises DataError if it is not one, or is too short or too long."""
    try:
        check_regular(path)
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            shape = _shape(path, file)
            size = math.prod(shape)
            check_fits(path, size)
            content = file.read(size + 1)  # never more: a few bytes of gzip may stand for gigabytes
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {why(error)}") from error
    if len(content) != size:
        count = f"{len(content):,}" if len(content) < size else f"more than {size:,}"
        raise DataError(f"{path}: {count} bytes of data where its header says {list(shape)}")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _shape(path: Path, file: GzipFile | BufferedReader) -> tuple[int, ...]:
    """Return the shape that the header says, and leave the file at the first byte of data."""
    begin = file.read(4)
    if len(begin) < 4 or begin[:2] != b"\0\0" or begin[2] != UNSIGNED_BYTE:
        raise DataError(f"{path}: not an IDX file of unsigned bytes; it begins with {begin.hex(' ')}")
    dimensions = begin[3]
    if not 1 <= dimensions <= MOST_DIMENSIONS:
        raise DataError(f"{path}: expected 1 to {MOST_DIMENSIONS} dimensions, its header says {dimensions}")
    sizes = file.read(4 * dimensions)
    if len(sizes) < 4 * dimensions:
        raise DataError(f"{path}: ends after {4 + len(sizes)} bytes, before any data")
    return struct.unpack(f">{dimensions}I", sizes)


def _files(folder: Path) -> dict[tuple[Split, str], Path]:
    """Return files by (part, `images` or `labels`); an unpacked file is preferred to its gzipped twin."""
    found: dict[tuple[Split, str], Path] = {}
    for path in sorted(folder.iterdir()):
        if match := NAME.fullmatch(path.name):
            key = (PARTS[match[1].lower()], match[2].lower())
            twin = found.setdefault(key, path)
            if path not in (twin, twin.with_name(twin.name + ".gz")):
                raise DataError(
                    f"{folder}: two files of {key[1]} for the {key[0]} part: {twin.name}, {path.name}"
                )
    return found
