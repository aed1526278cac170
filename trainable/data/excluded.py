"""Leaves out the images that a file lists: a row for each, with its name and perhaps its part."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainable.data.part_names import part_named, part_names
from trainable.data.source import Source, Split
from trainable.data.table import Table, read_table
from trainable.errors import DataError, listed, quoted
from trainable.files.paths import without_tilde
from trainable.recipe.data import Data

IMAGE, PART = "image", "part"
"""The columns of the file; others are for people."""
SHOWN = 5


def excluded(sources: Mapping[Split, Source], spec: Data) -> dict[Split, NDArray[np.bool_]]:
    """Return which images of each part the file at `data.exclude` lists, [N].

    An image is called by its path below the data, or by its number in an array. A row without a part is of
    any. Raises DataError for a row that names no image, and for a file that cannot be read.
    """
    if spec.exclude is None:
        return {part: np.zeros(len(source), bool) for part, source in sources.items()}
    path = without_tilde(spec.exclude)
    if not path.exists():
        raise DataError(f"data.exclude: {path} does not exist; check --write-exclusions writes one")
    table = read_table(path, [IMAGE], [PART])
    wanted: dict[tuple[Split | None, str], int] = {}
    for number, name, part in zip(table.numbers, table.columns[IMAGE], _parts(path, table), strict=True):
        wanted[part, (name or "").strip()] = number
    found, seen = dict[Split, NDArray[np.bool_]](), set[tuple[Split | None, str]]()
    for part, source in sources.items():
        names = [source.name(index) for index in range(len(source))]
        found[part] = np.array([(part, name) in wanted or (None, name) in wanted for name in names], bool)
        seen |= {key for name in names for key in ((part, name), (None, name))}
    skipped = set(spec.parts_left_out)
    if odd := [key for key in wanted if key not in seen and key[0] not in skipped]:
        raise DataError(
            f"data.exclude: {path}: {len(odd):,} of {len(wanted):,} rows name no image of {spec.path}: "
            f"{listed([f'line {wanted[key]}, {quoted(key[1])}' for key in odd], SHOWN)}; remove these rows, "
            "or write the file anew by check --write-exclusions"
        )
    return found


def exclusions_digest(spec: Data) -> str:
    """Return a digest of the list of what is left out; an empty text without one."""
    path = None if spec.exclude is None else without_tilde(spec.exclude)
    known = path is not None and os.path.isfile(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path is not None and known else ""


def _parts(path: Path, table: Table) -> list[Split | None]:
    """Return the part of each row. Raises DataError for what is none."""
    cells = table.columns.get(PART, [None] * len(table.numbers))
    texts = [(each or "").strip() for each in cells]
    parts = [part_named(each, {}) for each in texts]
    if odd := [each for each, part in zip(texts, parts, strict=True) if part is None and each]:
        raise DataError(
            f"data.exclude: {path}: column {PART}: expected {', '.join(part_names().values())}, or nothing; "
            f"got {quoted(odd[0])}"
        )
    return parts
