"""Reads a `.npz` file in MedMNIST's layout: train_images, train_labels, and the same for val and test.

Masks may stand in the labels' place: train_masks.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Container
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib.format import read_array, read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.typing import NDArray

from trainable.data.arrays import Arrays, check_fits, collect
from trainable.data.part_names import telling_how_to_leave_out
from trainable.data.source import Collection, Split
from trainable.errors import DataError, listed
from trainable.files.regular import check_regular, why

PREFIXES: dict[Split, str] = {"train": "train", "validation": "val", "test": "test"}


def read(path: Path, left_out: Container[Split] = ()) -> Collection:
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
            return _parts(path, file, second, left_out)
    except DataError:
        raise
    except Exception as error:  # a damaged zip file raises nearly anything, NotImplementedError among it
        raise DataError(f"{path}: cannot be read as an .npz file: {why(error)}") from error


def _parts(path: Path, file: zipfile.ZipFile, second: str, left_out: Container[Split]) -> dict[Split, Arrays]:
    arrays = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
    parts: dict[Split, Arrays] = {}
    for part, prefix in PREFIXES.items():
        names = [f"{prefix}_images", f"{prefix}_{second}"]
        if part in left_out:
            continue
        present = [name for name in names if name in arrays]
        with telling_how_to_leave_out(part):
            if len(present) == 2:
                parts[part] = (_array(path, file, arrays[names[0]]), _array(path, file, arrays[names[1]]))
            elif present or part == "train":
                found = listed(list(arrays))
                raise DataError(
                    f"{path}: expected {names[0]} and {names[1]} (MedMNIST's layout), found {found}"
                )
    return parts


def _array(path: Path, file: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """Return one array, after its header agrees with the size of its content and that fits into memory."""
    where = f"{path}: {info.filename}"
    check_fits(path, info.file_size)
    with file.open(info) as member:
        shape, _, kind = _header(member)
        start = member.tell()
    if kind.hasobject:
        raise DataError(f"{where}: holds Python objects, which are never loaded; expected numbers")
    size, stored = math.prod(shape) * kind.itemsize, info.file_size - start
    if size != stored:
        raise DataError(f"{where}: {stored:,} bytes where its header says {list(shape)} of {kind}")
    with file.open(info) as member:
        found: NDArray[Any] = read_array(member, allow_pickle=False)
        return found


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = read_magic(member)
    if version == (1, 0):
        return read_array_header_1_0(member)
    if version == (2, 0):
        return read_array_header_2_0(member)
    raise ValueError(f"version {version[0]}.{version[1]} of .npy is for named fields; expected numbers")
