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
from pathlib import Path

import numpy as np

from trainable.data.arrays import Arrays, collect
from trainable.data.source import Collection, Pixels, Split
from trainable.errors import DataError

NAME = re.compile(r"(train|val|validation|t10k|test)-(images|labels)[-.]idx\d-ubyte(\.gz)?", re.IGNORECASE)
PARTS: dict[str, Split] = {
    **{"train": "train", "val": "validation", "validation": "validation"},
    **{"t10k": "test", "test": "test"},
}
UNSIGNED_BYTE = 0x08


def is_idx_folder(folder: Path) -> bool:
    """Returns whether the folder has files named like MNIST's."""
    return any(NAME.fullmatch(entry.name) for entry in folder.iterdir())


def read(folder: Path) -> Collection:
    """Returns the collection in the folder's IDX files. `t10k` is the test part. Raises DataError."""
    files = _files(folder)
    parts: dict[Split, Arrays] = {}
    for part in sorted({part for part, _ in files}):
        for kind in ("images", "labels"):
            if (part, kind) not in files:
                raise DataError(f"{folder}: there is no file of {kind} for the {part} part")
        parts[part] = (read_file(files[part, "images"]), read_file(files[part, "labels"]))
    if "train" not in parts:
        raise DataError(f"{folder}: expected train-images-idx3-ubyte and train-labels-idx1-ubyte (.gz)")
    return collect(str(folder), "idx", parts)


def read_file(path: Path) -> Pixels:
    """Returns the array in one file, uint8.
    Raises DataError if it is not one, or is too short or too long."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTE:
        raise DataError(f"{path}: not an IDX file of unsigned bytes; it begins with {content[:4].hex(' ')}")
    start = 4 + 4 * content[3]
    if len(content) <= start:
        raise DataError(f"{path}: ends after {len(content)} bytes, before any data")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise DataError(f"{path}: {len(content) - start:,} bytes of data where its header says {list(shape)}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _files(folder: Path) -> dict[tuple[Split, str], Path]:
    """Returns files by (part, `images` or `labels`); an unpacked file is preferred to its gzipped twin."""
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
