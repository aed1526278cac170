"""Images in files of arrays: IDX files as MNIST has, `.npz` files as MedMNIST has, and scikit-learn's digits.

IDX files, gzipped or not, are named `train-images-idx3-ubyte.gz`, `t10k-labels-idx1-ubyte`, ... Their format
(http://yann.lecun.com/exdb/mnist/) is two zero bytes, the element type, the number of dimensions, the
dimensions as big-endian 32-bit integers, and the elements.
"""

from __future__ import annotations

import gzip
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Container
from gzip import GzipFile
from importlib.metadata import distribution
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib.format import read_array, read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.typing import NDArray

from trainable.data.arrays import Arrays, check_fits, collect
from trainable.data.part_names import telling_how_to_leave_out
from trainable.data.source import ArraySource, Collection, Pixels
from trainable.errors import DataError, listed
from trainable.files.regular import check_regular, why
from trainable.recipe.data import Split

IDX_NAME = re.compile(
    r"(train|val|validation|t10k|test)-(images|labels)[-.]idx\d-ubyte(\.gz)?", re.IGNORECASE
)
IDX_PARTS: dict[str, Split] = {
    **{"train": "train", "val": "validation", "validation": "validation"},
    **{"t10k": "test", "test": "test"},
}
UNSIGNED_BYTE = 0x08
MOST_DIMENSIONS = 4  # images in colour have four: number, height, width, channel


def is_idx_folder(folder: Path) -> bool:
    """Return whether the folder has files named like MNIST's."""
    return any(IDX_NAME.fullmatch(entry.name) for entry in folder.iterdir())


def read_idx(folder: Path, left_out: Container[Split] = ()) -> Collection:
    """Return the collection in the folder's IDX files. `t10k` is the test part. Raises DataError."""
    files = _idx_files(folder)
    parts: dict[Split, Arrays] = {}
    for part in sorted({part for part, _ in files if part not in left_out}):
        with telling_how_to_leave_out(part):
            for kind in ("images", "labels"):
                if (part, kind) not in files:
                    raise DataError(f"{folder}: there is no file of {kind} for the {part} part")
            parts[part] = (read_idx_file(files[part, "images"]), read_idx_file(files[part, "labels"]))
    if "train" not in parts:
        raise DataError(f"{folder}: expected train-images-idx3-ubyte and train-labels-idx1-ubyte (.gz)")
    return collect(str(folder), "idx", parts)


def read_idx_file(path: Path) -> Pixels:
    """Return the array in one file, uint8.
    Raises DataError if it is not one, or is too short or too long."""
    try:
        check_regular(path)
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            shape = _idx_shape(path, file)
            size = math.prod(shape)
            check_fits(path, size)
            content = file.read(size + 1)  # never more: a few bytes of gzip may stand for gigabytes
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {why(error)}") from error
    if len(content) != size:
        count = f"{len(content):,}" if len(content) < size else f"more than {size:,}"
        raise DataError(f"{path}: {count} bytes of data where its header says {list(shape)}")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _idx_shape(path: Path, file: GzipFile | BufferedReader) -> tuple[int, ...]:
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


def _idx_files(folder: Path) -> dict[tuple[Split, str], Path]:
    """Return files by (part, `images` or `labels`); an unpacked file is preferred to its gzipped twin."""
    found: dict[tuple[Split, str], Path] = {}
    for path in sorted(folder.iterdir()):
        if match := IDX_NAME.fullmatch(path.name):
            key = (IDX_PARTS[match[1].lower()], match[2].lower())
            twin = found.setdefault(key, path)
            if path not in (twin, twin.with_name(twin.name + ".gz")):
                raise DataError(
                    f"{folder}: two files of {key[1]} for the {key[0]} part: {twin.name}, {path.name}"
                )
    return found


NPZ_PREFIXES: dict[Split, str] = {"train": "train", "validation": "val", "test": "test"}


def read_npz(path: Path, left_out: Container[Split] = ()) -> Collection:
    """Return the collection in the file; `val_*` and `test_*` may be missing. Raises DataError."""
    return collect(str(path), "npz", arrays_in(path, "labels", left_out), by_class=True)


def arrays_in(
    path: Path, second: Literal["labels", "masks"], left_out: Container[Split] = ()
) -> dict[Split, Arrays]:
    """Return the images of each part that is not left out, and its labels or masks. Raises DataError."""
    try:
        check_regular(path)
        if not zipfile.is_zipfile(path):
            raise DataError(f"{path}: not an .npz file, or an incomplete one")
        with zipfile.ZipFile(path) as file:
            return _npz_parts(path, file, second, left_out)
    except DataError:
        raise
    except Exception as error:  # a damaged zip file raises nearly anything, NotImplementedError among it
        raise DataError(f"{path}: cannot be read as an .npz file: {why(error)}") from error


def _npz_parts(
    path: Path, file: zipfile.ZipFile, second: str, left_out: Container[Split]
) -> dict[Split, Arrays]:
    arrays = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
    parts: dict[Split, Arrays] = {}
    for part, prefix in NPZ_PREFIXES.items():
        names = [f"{prefix}_images", f"{prefix}_{second}"]
        if part in left_out:
            continue
        present = [name for name in names if name in arrays]
        with telling_how_to_leave_out(part):
            if len(present) == 2:
                parts[part] = (
                    _npz_array(path, file, arrays[names[0]]),
                    _npz_array(path, file, arrays[names[1]]),
                )
            elif present or part == "train":
                found = listed(list(arrays))
                raise DataError(
                    f"{path}: expected {names[0]} and {names[1]} (MedMNIST's layout), found {found}"
                )
    return parts


def _npz_array(path: Path, file: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """Return one array, after its header agrees with the size of its content and that fits into memory."""
    where = f"{path}: {info.filename}"
    check_fits(path, info.file_size)
    with file.open(info) as member:
        shape, _, kind = _npz_header(member)
        start = member.tell()
    if kind.hasobject:
        raise DataError(f"{where}: holds Python objects, which are never loaded; expected numbers")
    size, stored = math.prod(shape) * kind.itemsize, info.file_size - start
    if size != stored:
        raise DataError(f"{where}: {stored:,} bytes where its header says {list(shape)} of {kind}")
    with file.open(info) as member:
        found: NDArray[Any] = read_array(member, allow_pickle=False)
        return found


def _npz_header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = read_magic(member)
    if version == (1, 0):
        return read_array_header_1_0(member)
    if version == (2, 0):
        return read_array_header_2_0(member)
    raise ValueError(f"version {version[0]}.{version[1]} of .npy is for named fields; expected numbers")


# The file that `sklearn.datasets.load_digits` reads; importing that takes 1.5 s of each process
DIGITS_FILE = "sklearn/datasets/data/digits.csv.gz"


def read_digits() -> Collection:
    """Return the digits as uint8; scikit-learn has them as 0 to 16."""
    table = np.loadtxt(str(distribution("scikit-learn").locate_file(DIGITS_FILE)), delimiter=",")
    images = np.rint(table[:, :-1].reshape(-1, 8, 8) * (255.0 / 16.0)).astype(np.uint8)
    classes = tuple(str(digit) for digit in range(10))
    source = ArraySource(images, table[:, -1].astype(np.int64))
    return Collection("digits", "digits", classes, {"train": source})
