"""Reads a `.npz` file in MedMNIST's layout: train_images, train_labels, and the same for val and test."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from trainable.data.arrays import Arrays, collect
from trainable.data.source import Collection, Split
from trainable.errors import DataError

PREFIXES: dict[Split, str] = {"train": "train", "validation": "val", "test": "test"}


def read(path: Path) -> Collection:
    """Returns the collection in the file; `val_*` and `test_*` may be missing. Raises DataError."""
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: not an .npz file, or an incomplete one")
    try:
        with np.load(path, allow_pickle=False) as file:
            return collect(str(path), "npz", _parts(path, file))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: cannot be read as an .npz file: {error}") from error


def _parts(path: Path, file: np.lib.npyio.NpzFile) -> dict[Split, Arrays]:
    parts: dict[Split, Arrays] = {}
    for part, prefix in PREFIXES.items():
        names = [f"{prefix}_images", f"{prefix}_labels"]
        present = [name for name in names if name in file.files]
        if len(present) == 2:
            parts[part] = (file[names[0]], file[names[1]])
        elif present or part == "train":
            found = ", ".join(file.files)
            raise DataError(f"{path}: expected {names[0]} and {names[1]} (MedMNIST's layout), found {found}")
    return parts
