"""Reads a manifest: a CSV or Parquet file with a row for each image, its path or URI, its label, and perhaps
its part and its group."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import compress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from trainable.data.excluded import IMAGE, are_excluded
from trainable.data.groups import capture_in, captured
from trainable.data.part_names import PartChoice, excluding, none_leaves_out, part_named, part_names
from trainable.data.remote_data import cached, cached_objects, objects_digest
from trainable.data.source import (
    ASKED_AT_ONCE,
    ASKING_THREADS,
    NO_LABEL,
    Collection,
    FileSource,
    numbered,
    ordered,
)
from trainable.data.table import CellTable, read_table
from trainable.errors import DataError, listed, quoted
from trainable.files.paths import usable_path
from trainable.files.regular import check_regular
from trainable.files.store import Store, escaped, is_uri, unescaped
from trainable.recipe.data import MANIFEST_ENDINGS, Data, Split


def is_manifest(spec: Data) -> bool:
    """Return whether a section names a manifest, on this machine or behind a URI."""
    path = Store(spec.path).name if is_uri(spec.path) else spec.path
    known = os.path.splitext(path)[1].lower() in MANIFEST_ENDINGS
    if spec.format == "manifest" and not known:
        raise DataError(
            f"data.path: {spec.path} is no manifest; expected a file {', '.join(MANIFEST_ENDINGS)}"
        )
    return spec.format == "manifest" or (spec.format == "auto" and spec.name is None and known)


def read_manifest(spec: Data) -> Collection:
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


def rows_by_part(spec: Data, rows: ManifestRows) -> dict[Split, list[int]]:
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


def manifest_fingerprint(spec: Data, mask: str | None = None) -> str:
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


WHOLE_FLOAT = re.compile(r"(-?(0|[1-9][0-9]*)([.]0+)?)?", re.ASCII)
COLUMNS = "data.columns says which is meant, and task.masks.column which has the masks"
NAMED = 5  # so many rows with a fault are named by their numbers; the rest are counted


@dataclass(frozen=True)
class ManifestRows:
    """What a manifest says of each image, in the order of its rows."""

    paths: list[str]  # the paths are as the manifest has them; those that are URIs have no escapes
    # There are none for images with masks; NO_LABEL is of an image that `data.exclude` must leave out
    labels: list[str]
    splits: list[Split]
    groups: list[str] | None
    files: list[str]  # absolute paths on this machine, or URIs
    # The masks' paths are as the manifest has them; there are none for images with labels. Of an image that
    # `data.exclude` leaves out there may be no mask, and no file.
    masks: list[str]
    mask_files: list[str]
    left_out: list[bool]  # by `data.exclude`


def absolute(path: str) -> Path:
    """Return a path on this machine, from the root on."""
    return Path(os.path.abspath(os.path.expanduser(path)))


def rows_of(spec: Data, mask: str | None = None) -> ManifestRows:
    """Return the rows, after all of them have been checked. With `mask`, the column with this name is in the
    place of the labels'.

    Raises DataError with the numbers of rows that have no file, no label, or an unknown part, or occur twice;
    what `data.exclude` leaves out may lack its file and its mask.
    """
    path = cached(spec.path) if is_uri(spec.path) else absolute(spec.path)
    if not path.exists():
        raise DataError(f"data.path: {path} does not exist")
    columns = spec.columns
    split, group = columns.split or "split", columns.group or "group"
    second = columns.label if mask is None else mask
    named = [each for each in (columns.split, columns.group) if each is not None]
    optional = [split, group, *([spec.group] if spec.group is not None else [])]
    table = read_table(path, list(dict.fromkeys([columns.path, second, *named])), optional, COLUMNS)
    table = _trimmed(table, spec, mask)
    if not table.numbers:
        raise DataError(f"{path}: has no rows; expected one for each image")
    if spec.exclude_parts or spec.parts_left_out:
        cells = [each or "" for each in table.columns.get(split, [])]
        used = {*PartChoice.of(spec).used(cells, path)}
        table = table.only([each in used for each in cells]) if cells else table
    splits: list[Split | None] = ["train"] * len(table.numbers)  # where there is no column of parts
    if (column := table.columns.get(split)) is not None:
        splits = [part_named(each or "", spec.named_parts) for each in column]
    files = _located(table.columns[columns.path], spec)
    mask_files = [] if mask is None else _located(table.columns[mask], spec)
    paths, seconds = _unescaped(table.columns[columns.path]), _unescaped(table.columns[second])
    left_out = are_excluded(spec, splits, paths)
    _raise_faults(path, table, spec, _Cells(second, splits, files, mask_files, left_out))
    labels = [each or NO_LABEL for each in table.columns[second]] if mask is None else []
    return ManifestRows(
        paths,
        labels,
        [each for each in splits if each is not None],
        _groups(table, spec, paths, labels, path),
        [each for each in files if each is not None],
        [] if mask is None else seconds,
        [each or "" for each in mask_files],
        left_out,
    )


def _trimmed(table: CellTable, spec: Data, mask: str | None) -> CellTable:
    """Return the rows without spaces around what they say, unless these belong to a file's name; and whole
    numbers as such where a spreadsheet has written all labels like `1.0`."""
    path, label = spec.columns.path, spec.columns.label
    trimmed = {
        name: _without_spaces(column, spec)
        if name in (path, mask)
        else [each and each.strip() for each in column]
        for name, column in table.columns.items()
    }
    labels = trimmed.get(label, [])
    if all(each is None or WHOLE_FLOAT.fullmatch(each) for each in labels):
        trimmed |= {label: [each and each.partition(".")[0] for each in labels]} if labels else {}
    return table._replace(columns=trimmed)


def _without_spaces(paths: Sequence[str | None], spec: Data) -> list[str | None]:
    """Return the paths without spaces around them, but for those of a file that is called so."""
    root = spec.root if spec.root is not None else _folder_of(spec.path)
    folder = "" if is_uri(root) else str(absolute(root))

    def is_named(path: str) -> bool:
        return bool(folder) and os.path.lexists(os.path.join(folder, path))

    return [path and (path if path == path.strip() or is_named(path) else path.strip()) for path in paths]


def _unescaped(paths: Sequence[str | None]) -> list[str]:
    return [unescaped(each) if is_uri(each) else each for each in map(str, paths)]


def _groups(
    table: CellTable, spec: Data, paths: Sequence[str], labels: Sequence[str], where: Path
) -> list[str] | None:
    """Return each row's group: from the column that is named, or by the expression in `data.group`."""
    named = spec.columns.group
    if spec.group is not None and spec.group not in table.columns:
        if named is not None:
            raise DataError(f"{where}: data.columns.group and data.group both name the groups; leave one out")
        return list(captured(capture_in(spec.group), paths, labels, str(where), labels or None))
    column = spec.group or named or "group"
    values = table.columns.get(column)
    if values is None:
        return None
    if empty := [number for number, value in zip(table.numbers, values, strict=True) if _is_blank(value)]:
        raise DataError(
            f"{where}: 1 fault\n  {_in_rows(f'{column} (the group) is empty', empty, table.unit)}"
        )
    return [str(each) for each in values]


def _is_blank(text: str | None) -> bool:
    return text is None or not text.strip()


def _located(paths: Sequence[str | None], spec: Data) -> list[str | None]:
    """Return each image's absolute path on this machine or its URI; None for a row without a path."""
    root = spec.root if spec.root is not None else _folder_of(spec.path)
    if not is_uri(root):
        folder = str(absolute(root))
        return [_uri_of(each) or (each and os.path.join(folder, each)) for each in paths]
    store = Store(root)
    return [
        _uri_of(each) or (each if not each or each.startswith("/") else escaped(store.at(each).uri))
        for each in paths
    ]


def _uri_of(path: str | None) -> str | None:
    """Return the URI in one form, so that an image has one name; None if the path is none."""
    return escaped(path) if path and is_uri(path) else None


def _folder_of(path: str) -> str:
    return Store(path).parent.uri if is_uri(path) else str(absolute(path).parent)


class _Cells(NamedTuple):
    """What the rows of a table say, faults and all."""

    second: str  # the column beside the paths: of labels, or of masks
    splits: Sequence[Split | None]  # None where it is no part's name
    files: Sequence[str | None]  # None for a row without a path
    mask_files: Sequence[str | None]  # none of them where images have labels
    left_out: Sequence[bool]  # by a list


def _raise_faults(
    where: Path,
    table: CellTable,
    spec: Data,
    cells: _Cells,
) -> None:
    """Raise DataError with every kind of fault that rows have, and the numbers of the first ones."""
    columns, values = spec.columns, table.columns
    second, splits, files, mask_files, left_out = cells

    def staying(faulty: Iterable[bool]) -> list[bool]:
        return [each and not out for each, out in zip(faulty, left_out, strict=True)]

    # A list may leave out all that have no label: `kept` looks, once each image has its name
    has_list = spec.exclude is not None and not mask_files
    blank = staying(not has_list and _is_blank(each) for each in values[second])
    lost = staying(_missing(files))
    unmasked = staying(_missing(mask_files)) if mask_files else [False] * len(left_out)
    split = columns.split or "split"
    odd = Counter(
        value or "" for value, part in zip(values.get(split, ()), splits, strict=False) if part is None
    )
    expected = ", ".join(part_names(spec.named_parts).values())
    found = {
        f"{columns.path} is empty": [not each for each in files],
        f"{second} is empty": blank,
        f"{split} is {listed(sorted(map(repr, odd)), 3)}; expected {expected}{_naming(odd, splits, spec)}": [
            each is None for each in splits
        ],
        "there is no such file": lost,
        "there is no such mask": unmasked,
        "the image is in an earlier row too": _doubled(files),
    }
    faults = list[str]()
    for fault, faulty in found.items():
        if at := [number for number, each in zip(table.numbers, faulty, strict=True) if each]:
            example = _example(fault, at, table, second if "mask" in fault else columns.path)
            faults.append(_in_rows(fault, at, table.unit, example) + _of_one_part(faulty, splits))
    if faults:
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} kinds of faults"
        can_be_listed = any(map(any, (blank, lost, unmasked)))
        advice = [f"data.exclude leaves out the images that a CSV file lists in a column {IMAGE}"]
        raise DataError("\n  ".join([f"{where}: {count}", *faults, *(advice if can_be_listed else [])]))


def _naming(odd: Counter[str], splits: Sequence[Split | None], spec: Data) -> str:
    """Return how to use rows of splits with other names, or to leave them out where training rows remain: the
    most frequent name may be of a part without rows. An empty name can only be used."""
    if not odd:
        return ""
    order: tuple[Split, ...] = ("train", "test", "validation")
    free = [part for part in order if part not in splits and part not in spec.parts_left_out]
    example = f", such as data.{free[0]}: {quoted(odd.most_common(1)[0][0])}" if free else ""
    named = sorted(filter(None, odd)) if "train" in splits else []
    leaving = f"; {excluding(named)} leaves them out" if named else ""
    return f"; data.train, data.validation and data.test name them{example}{leaving}"


def _of_one_part(faulty: Sequence[bool], splits: Sequence[Split | None]) -> str:
    """Return how to leave out the part that has all of the faults, if it is one that can be left out."""
    parts = {part for part, is_faulty in zip(splits, faulty, strict=True) if is_faulty}
    part = parts.pop() if len(parts) == 1 else None
    return none_leaves_out(part) if part is not None else ""


def _example(fault: str, rows: Sequence[int], table: CellTable, column: str) -> str:
    """Return the first path with a fault of paths, so that a person sees what is wrong with it."""
    if not fault.startswith("the"):
        return ""
    return f" (the first is {table.columns[column][table.numbers.index(rows[0])]})"


def _in_rows(fault: str, rows: Sequence[int], unit: str, example: str = "") -> str:
    if len(rows) == 1:
        return f"{unit} {rows[0]}: {fault}{example}"
    return f"{unit}s {listed([str(row) for row in rows], NAMED)}: {fault}{example}"


def _missing(files: Sequence[str | None]) -> list[bool]:
    """Return for each file of this machine whether it is missing.

    Threads ask for many at a time: over a network each answer takes a while, and what a pool keeps of each
    question is more than all that a row says.
    """

    def ask(first: int) -> list[bool]:
        return [_is_missing(each) for each in files[first : first + ASKED_AT_ONCE]]

    with ThreadPoolExecutor(ASKING_THREADS) as pool:
        return [each for some in pool.map(ask, range(0, len(files), ASKED_AT_ONCE)) for each in some]


def _is_missing(file: str | None) -> bool:
    if not file or is_uri(file):
        return False
    try:
        check_regular(usable_path(file))
    except (OSError, ValueError):
        return True
    return False


def _doubled(files: Sequence[str | None]) -> list[bool]:
    """Return for each row whether an earlier one has the same file."""
    seen = set[str]()

    def again(file: str | None) -> bool:
        if not file:
            return False
        name = file if is_uri(file) else os.path.normpath(file)
        known = name in seen
        seen.add(name)
        return known

    return [again(each) for each in files]


def files_here(spec: Data, files: Sequence[str], paths: Sequence[str]) -> tuple[str, list[str]]:
    """Return a folder of this machine with the files, and each one's path in it or its absolute path.

    Those behind URIs are copied, once. `files` are absolute paths or URIs, and `paths` what the manifest has.
    """
    objects = [each for each in files if is_uri(each)]
    if objects:
        folder, names = cached_objects(objects)
        return str(folder), [names.get(each, each) for each in files]
    return str(absolute(spec.root if spec.root is not None else _folder_of(spec.path))), list(paths)
