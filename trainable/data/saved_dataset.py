"""Reads a folder that Hugging Face `datasets` has saved (`save_to_disk`), with pyarrow alone.

`datasets` would be four packages more, and seconds of import in each process that reads; its files are
Arrow's streams, whose columns of images hold bytes or a path.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trainable.data.arrow_source import ArrowSource, check_declared, open_table, paths_without_bytes
from trainable.data.groups import capture_in, captured
from trainable.data.image_files import line_of
from trainable.data.manifest import absolute
from trainable.data.part_names import (
    PartChoice,
    excluding,
    part_named,
    part_names,
    refuse_excluded,
    telling_how_to_leave_out,
)
from trainable.data.source import LEFT_OUT, NO_LABEL, Collection, numbered, ordered
from trainable.data.table import texts
from trainable.errors import DataError, listed, quoted
from trainable.files.regular import read_regular, why
from trainable.files.store import is_uri
from trainable.recipe.data import Data, Split

PARTS_FILE, STATE_FILE, INFO_FILE = "dataset_dict.json", "state.json", "dataset_info.json"
MOST_BYTES = 2**26  # no file that describes a data set is larger


class _StoredPart(NamedTuple):
    """What is known of the images of one part, in stored order."""

    files: tuple[str, ...]
    column: str
    names: list[str]  # the images' paths, without folders where bytes are stored; empty where there is none
    labels: list[str]
    groups: list[str] | None


def is_saved_dataset(folder: Path) -> bool:
    """Return whether a folder holds what `save_to_disk` writes: a data set, or one for each split."""
    return (folder / PARTS_FILE).is_file() or (
        (folder / STATE_FILE).is_file() and (folder / INFO_FILE).is_file()
    )


def read(root: Path, spec: Data) -> Collection:
    """Return the collection in a folder. Splits are parts; a data set without splits is one tree.

    Images are used in the order of a folder that holds them: by class, then by path if all have different
    ones, else in stored order. Raises DataError.
    """
    with _damage_named(root):
        folders, images = _folders(root, spec), _images_folder(root, spec)
    parts = dict[Split, _StoredPart]()
    for part, folder in folders.items():
        with telling_how_to_leave_out(part), _damage_named(folder):
            parts[part] = _part(folder, spec, images)
    classes = ordered(chain.from_iterable(each.labels for each in parts.values()))
    orders = {part: _order(each) for part, each in parts.items()}
    sources = {
        part: ArrowSource(
            images,
            each.files,
            each.column,
            orders[part],
            tuple(each.names[row] for row in orders[part]),
            numbered([each.labels[row] for row in orders[part]], classes),
        )
        for part, each in parts.items()
    }
    groups: dict[Split, tuple[str, ...]] = {
        part: tuple(each.groups[row] for row in orders[part])
        for part, each in parts.items()
        if each.groups is not None
    }
    grouped = groups if len(groups) == len(parts) else None
    return Collection(str(root), "datasets", classes, sources, groups=grouped)


def fingerprint(root: Path, spec: Data) -> str:
    """Return sixteen hexadecimal digits over the name, size and time of change of each image that a saved set
    names by a path alone. Raises DataError as `read` does."""
    digest = hashlib.sha256()
    for source in read(root, spec).parts.values():
        assert isinstance(source, ArrowSource)
        for line in map(line_of, source.files_by_path()):
            digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


@contextmanager
def _damage_named(folder: Path) -> Iterator[None]:
    """Raise DataError in place of what a missing or damaged file raises, whatever is in it."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder}: is no folder that `datasets` has saved: {why(error)}") from error


def _folders(root: Path, spec: Data) -> dict[Split, Path]:
    if not (root / PARTS_FILE).is_file():
        refuse_excluded(spec, f"{root}, a saved set without splits,")
        return {"train": root}
    names = PartChoice.of(spec).used(_json(root / PARTS_FILE)["splits"], root)
    named = spec.named_parts
    found: dict[Split, Path] = {}
    for name in names:
        part = part_named(name, named)
        if part is None or part in found:
            known = ", ".join(part_names(named).values())
            problem = "is not known" if part is None else f"is a second {part} part"
            raise DataError(
                f"{root}: split {quoted(name)} {problem}; expected {known}. data.{part or 'train'} names "
                f"one, and {excluding([name])} leaves it out"
            )
        if Path(name).name != name:
            raise DataError(f"{root}: split {quoted(name)} is no name of a folder")
        found[part] = root / name
    if "train" not in found:
        raise DataError(
            f"{root}: there is no training split among {listed(list(names))}; name it by data.train"
        )
    return found


def _images_folder(root: Path, spec: Data) -> str:
    """Return the folder in which images lie that are stored as a path alone."""
    if spec.root is None:
        return str(root)
    if is_uri(spec.root):
        raise DataError(f"data.root: {spec.root}: expected a folder of this machine for a saved data set")
    return str(absolute(spec.root))


def _part(folder: Path, spec: Data, images: str) -> _StoredPart:
    import pyarrow as arrow

    state, features = _json(folder / STATE_FILE), _json(folder / INFO_FILE)["features"]
    if state.get("_indices_data_files"):
        raise DataError(f"{folder}: it selects rows by an index; save it again after `flatten_indices()`")
    names = [each["filename"] for each in state["_data_files"]]
    if odd := [each for each in names if Path(each).name != each]:
        raise DataError(f"{folder}: {quoted(odd[0])} is no file of this folder")
    if not names:
        raise DataError(f"{folder}: has no images; expected some in each part")
    files = tuple(str(folder / each) for each in names)
    column = _column(folder, features, spec.columns.path, "Image", "path")
    label = _column(folder, features, spec.columns.label, "ClassLabel", "label")
    check_declared(files)
    table = open_table(files)
    labels = _labels(texts(table.column(label), f"{folder}: column {label!r}"), features[label])
    if spec.exclude is None and (empty := [row for row, each in enumerate(labels, 1) if each == NO_LABEL]):
        raise DataError(
            f"{folder}: {label}: there is no label in rows {listed([str(row) for row in empty])}; "
            "data.exclude leaves out the images that a CSV file lists in a column image"
        )
    stored = table.column(column)
    fields = arrow.chunked_array(
        [chunk.field("path") for chunk in stored.chunks], stored.type.field("path").type
    )
    paths = [path or "" for path in texts(fields, f"{folder}: column {column!r}")]
    _refuse_outside(folder, images, paths_without_bytes(stored), links=spec.root is not None)
    return _StoredPart(files, column, paths, labels, _groups(folder, table, spec, paths, labels))


def _refuse_outside(folder: Path, images: str, paths: Iterable[tuple[int, str]], *, links: bool) -> None:
    """Raise DataError for images, by row and path, that do not lie below a folder: whoever made the data set
    has written where they are, and it may be a folder of this machine that is no part of it. Links may lead
    there too, unless a person has named the folder: then `links` may lead anywhere."""
    real = lru_cache(maxsize=1024)(os.path.realpath)  # most images lie in few folders

    def is_inside(path: str) -> bool:
        whole = Path(images, path)  # behind a link `..` may lead anywhere
        is_named_inside = ".." not in whole.parts and whole.is_relative_to(images)
        if links or not is_named_inside:
            return is_named_inside
        parent, name = os.path.split(os.path.join(images, path))
        file = os.path.join(real(parent), name)
        file = os.path.realpath(file) if os.path.islink(file) else file
        return Path(file).is_relative_to(real(images))

    outside = [(row, path) for row, path in paths if not is_inside(path)]
    if outside:
        rows = listed([str(row + 1) for row, _ in outside])
        raise DataError(
            f"{folder}: rows {rows} name images outside of {images}, the first {quoted(outside[0][1])}, by a "
            "path or a link; if you know the files, data.root names the folder in which they lie"
        )


def _column(folder: Path, features: Mapping[str, Any], named: str, kind: str, field: str) -> str:
    """Return the column that is named, or else the only one of its kind. Raises DataError."""
    if named in features:
        return named
    found = [
        name
        for name, feature in features.items()
        if isinstance(feature, Mapping) and feature.get("_type") == kind
    ]
    if len(found) == 1 and named == field:
        return found[0]
    raise DataError(
        f"{folder}: there is no column {named!r}, and {len(found)} of type {kind}; its columns are "
        f"{listed(list(features), 20)}. data.columns.{field} names one"
    )


def _labels(values: list[str | None], feature: Mapping[str, Any]) -> list[str]:
    """Return each row's label: a class label's name, else the value itself; NO_LABEL where there is none."""
    names = feature.get("names") if feature.get("_type") == "ClassLabel" else None
    if names is None:
        return [(value or "").strip() and str(value) for value in values]
    numbers = [int(value) if value is not None and value.strip() else LEFT_OUT for value in values]
    return [str(names[number]) if 0 <= number < len(names) else NO_LABEL for number in numbers]


def _groups(
    folder: Path, table: Any, spec: Data, paths: Sequence[str], labels: Sequence[str]
) -> list[str] | None:
    named = spec.group if spec.group in table.column_names else spec.columns.group
    if spec.group is not None and named != spec.group:
        return list(captured(capture_in(spec.group), paths, labels, str(folder), labels))
    if named is None and "group" not in table.column_names:
        return None
    column = named or "group"
    if column not in table.column_names:
        raise DataError(
            f"{folder}: there is no column {column!r}; its columns are {listed(table.column_names, 20)}"
        )
    values = texts(table.column(column), f"{folder}: column {column!r}")
    if empty := [str(row) for row, value in enumerate(values, 1) if value is None or not value.strip()]:
        raise DataError(f"{folder}: column {column!r}, the group, is empty in rows {listed(empty)}")
    return [str(each) for each in values]


def _order(part: _StoredPart) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the rows by path if those of a class are all different, else as they are stored; the classes
    are put in order when the images are used."""
    pairs = set(zip(part.labels, part.names, strict=True))
    rows = range(len(part.labels))
    if all(part.names) and len(pairs) == len(part.labels):
        return np.array(sorted(rows, key=lambda row: tuple(part.names[row].split("/"))), np.int64)
    return np.array(rows, np.int64)


def _json(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read_regular(file, MOST_BYTES))
    return found
