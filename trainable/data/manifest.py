"""Reads a manifest: a CSV or Parquet file with a row for each image, its path or URI, its label, and perhaps
its part and its group."""

from __future__ import annotations

import hashlib
import os
from itertools import compress
from pathlib import Path, PurePosixPath

import numpy as np

from trainable.data.classes import numbered, ordered
from trainable.data.manifest_rows import Rows, absolute, files_here, rows_of
from trainable.data.part_names import part_names
from trainable.data.remote_data import objects_digest
from trainable.data.source import Collection, FileSource, Split
from trainable.data.table import PARQUET, SEPARATORS
from trainable.errors import DataError
from trainable.files.store import Store, is_uri
from trainable.recipe.data import Data

ENDINGS = (*SEPARATORS, *PARQUET)


def is_manifest(spec: Data) -> bool:
    """Return whether a section names a manifest, on this machine or behind a URI."""
    path = Store(spec.path).name if is_uri(spec.path) else spec.path
    known = os.path.splitext(path)[1].lower() in ENDINGS
    if spec.format == "manifest" and not known:
        raise DataError(f"data.path: {spec.path} is no manifest; expected a file {', '.join(ENDINGS)}")
    return spec.format == "manifest" or (spec.format == "auto" and spec.name is None and known)


def read(spec: Data) -> Collection:
    """Return the collection that a manifest lists. Images behind URIs are copied to this machine, once.

    The images are used in the order of a folder that holds them: by class, then by path. Raises DataError
    with the numbers of rows that have no file, no label, or an unknown part, or occur twice.
    """
    rows = rows_of(spec)
    by_part = rows_by_part(spec, rows)
    classes = ordered(rows.labels)
    rank = numbered(rows.labels, classes).tolist()
    chosen = {
        part: sorted(found, key=lambda row: (rank[row], PurePosixPath(rows.paths[row]).parts))
        for part, found in by_part.items()
    }
    root, files = files_here(spec, rows.files, rows.paths)
    objects = tuple(each for each in rows.files if is_uri(each))
    return Collection(
        path_of(spec),
        "manifest",
        classes,
        {
            part: FileSource(
                root, [files[row] for row in found], numbered([rows.labels[row] for row in found], classes)
            )
            for part, found in chosen.items()
        },
        groups=None
        if rows.groups is None
        else {part: tuple(rows.groups[row] for row in found) for part, found in chosen.items()},
        objects=objects,
        copy=Path(root) if objects else None,
    )


def rows_by_part(spec: Data, rows: Rows) -> dict[Split, list[int]]:
    """Return the positions of the rows of each part that has any. Raises DataError if there is no training
    part."""
    by_part = {part: np.flatnonzero([each == part for each in rows.splits]).tolist() for part in part_names()}
    by_part = {part: found for part, found in by_part.items() if found}
    if "train" not in by_part:
        raise DataError(
            f"{spec.path}: no row has the split train; data.train gives it another name, and "
            "data.columns.split names the column"
        )
    return by_part


def path_of(spec: Data) -> str:
    """Return a manifest's path as a resolved recipe has it: its URI, or its path from the root on."""
    return spec.path if is_uri(spec.path) else str(absolute(spec.path))


def fingerprint(spec: Data, mask: str | None = None) -> str:
    """Return sixteen hexadecimal digits over a manifest's rows, and over the size and time of change of each
    image that is used, and of each mask in the column `mask`. Raises DataError as `read` does."""
    rows = rows_of(spec, mask)
    used = [not out for out in rows.left_out]  # the others may have no file
    files = [*compress(rows.files, used), *compress(rows.mask_files, used)]
    local = [each for each in files if not is_uri(each)]
    found = FileSource("/", local, np.zeros(len(local), np.int64)).sizes_and_times(np.arange(len(local)))
    text = [rows.paths, rows.labels, rows.splits, rows.groups, files]
    digest = hashlib.sha256(repr(text).encode(errors="surrogateescape"))
    digest.update(found.tobytes())
    if len(local) < len(files):
        digest.update(objects_digest([each for each in files if is_uri(each)]).encode())
    return digest.hexdigest()[:16]
