"""Leaves out the images that a file lists: a row for each, with its name and perhaps its part."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainable.array_types import Integers
from trainable.data.part_names import none_leaves_out, part_named, part_names
from trainable.data.source import Source
from trainable.data.table import CellTable, read_table
from trainable.errors import DataError, listed, quoted
from trainable.files.paths import without_tilde
from trainable.recipe.data import Data, Split

IMAGE, PART = "image", "part"  # the columns of the file; others are for people
COLUMNS = f"images are listed in a column {IMAGE}, and their parts, if they are named, in a column {PART}"
SHOWN = 5
CLASSES_SHOWN = 20
# Loading the data would fail by the same list: so it must not be named in this call
WRITE_ANEW = "tunebook check ... --set data.exclude=null --write-exclusions NEW.csv"


def excluded(sources: Mapping[Split, Source], spec: Data) -> dict[Split, NDArray[np.bool_]]:
    """Return which images of each part the file at `data.exclude` lists, [N].

    An image is called by its path below the data, or by its number in an array (`names_in_list`). A row
    without a part is of any. Raises DataError for a row that names no image, for a file that cannot be read,
    and for a part of which it leaves nothing.
    """
    if spec.exclude is None:
        return {part: np.zeros(len(source), bool) for part, source in sources.items()}
    names_of = {part: names_in_list(source) for part, source in sources.items()}
    wanted = _listed(spec, set(chain.from_iterable(names_of.values())))
    path = without_tilde(spec.exclude)
    found, seen = dict[Split, NDArray[np.bool_]](), set[tuple[Split | None, str]]()
    for part, names in names_of.items():
        found[part] = np.array(_are_in(wanted, [part] * len(names), names), bool)
        seen |= {key for name in names for key in ((part, name), (None, name))}
    skipped = set(spec.parts_left_out)
    if odd := [key for key in wanted if key not in seen and key[0] not in skipped]:
        raise DataError(
            f"data.exclude: {path}: {len(odd):,} of {len(wanted):,} rows name no image of {spec.path}: "
            f"{listed([f'line {wanted[key]}, {quoted(key[1])}' for key in odd], SHOWN)}; remove these rows, "
            f"or write the list anew by {WRITE_ANEW}"
        )
    for part, out in found.items():
        if out.size and out.all():
            raise DataError(
                f"data.exclude: {path} lists all {len(out):,} images of the {part} part of {spec.path}; "
                f"expected some to stay: take rows out of it{none_leaves_out(part)}"
            )
    return found


def are_excluded(spec: Data, parts: Sequence[Split | None], names: Sequence[str]) -> list[bool]:
    """Return which images `data.exclude` lists, by their parts and names, before any is looked for. Raises
    DataError for a list that cannot be read."""
    return _are_in(_listed(spec, set(names)), parts, names)


def _are_in(
    wanted: Container[tuple[Split | None, str]], parts: Sequence[Split | None], names: Sequence[str]
) -> list[bool]:
    return [(part, name) in wanted or (None, name) in wanted for part, name in zip(parts, names, strict=True)]


def _listed(spec: Data, known: AbstractSet[str]) -> dict[tuple[Split | None, str], int]:
    """Return the line of each part and name in the list; there may be spaces around names, unless images are
    called so, as far as they are `known`."""
    if spec.exclude is None:
        return {}
    path = without_tilde(spec.exclude)
    if path.is_dir() or not path.exists():
        problem = "is a folder; expected a CSV file" if path.is_dir() else "does not exist"
        raise DataError(f"data.exclude: {path} {problem}; {WRITE_ANEW} writes such a list")
    try:
        table = read_table(path, [IMAGE], [PART], COLUMNS)
    except DataError as error:
        raise DataError(f"data.exclude: {error}") from None
    wanted: dict[tuple[Split | None, str], int] = {}
    for number, cell, part in zip(table.numbers, table.columns[IMAGE], _parts(path, table), strict=True):
        name = cell or ""
        wanted[part, name if name in known else name.strip()] = number  # a file's name may begin with a space
    return wanted


def check_no_class_lost(spec: Data, classes: Sequence[str], before: Integers, after: Integers) -> None:
    """Raise DataError, naming it, for a class that loses its last training image to the list.

    `before` and `after` are how many training images each class has, [K]: with masks, how many show it.
    """
    lost = np.flatnonzero((before > 0) & (after == 0)).tolist()
    if not lost:
        return
    named = listed([f"{classes[label]} ({before[label]:,})" for label in lost], CLASSES_SHOWN)
    raise DataError(
        f"data.exclude: {spec.exclude} lists all training images of {named}; expected some of each class to "
        "stay: take rows out of it, or leave the class out by data.min_images: 1 (with masks, by "
        "task.masks.void)"
    )


def names_in_list(source: Source) -> list[str]:
    """Return what each image is called in the list: its name; of several with one name, as a saved data set
    may have, the second is `a.png #2`."""
    found, seen = list[str](), Counter[str]()
    for index in range(len(source)):
        name = source.name(index)
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return found


def exclusions_digest(spec: Data) -> str:
    """Return a digest of the list of what is left out; an empty text without one."""
    path = None if spec.exclude is None else without_tilde(spec.exclude)
    known = path is not None and os.path.isfile(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path is not None and known else ""


def _parts(path: Path, table: CellTable) -> list[Split | None]:
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
