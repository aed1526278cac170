"""Reads labelled images in whatever format they have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, assert_never

from trainable.bench import Bench
from trainable.data import folder, saved_dataset, torchvision_sets
from trainable.data.array_files import IDX_NAME, is_idx_folder, read_digits, read_idx, read_npz
from trainable.data.groups import with_groups
from trainable.data.kept import kept
from trainable.data.manifest import is_manifest, read_manifest
from trainable.data.part_names import PartChoice, refuse_excluded
from trainable.data.source import Collection
from trainable.errors import DataError
from trainable.files.paths import usable_path
from trainable.files.regular import why
from trainable.files.store import is_uri
from trainable.recipe.data import DATA_IN_WORDS, Columns, Data
from trainable.recipe.tasks import AnyTask

DataFormat = Literal["digits", "folder", "manifest", "datasets", "npz", "idx", "torchvision"]


def read(spec: Data, bench: Bench) -> Collection:
    """Return the labelled images that a recipe's `data` section names. Raises DataError.

    A manifest may be behind a URI; other data must be on this machine.
    """
    if is_manifest(spec):
        return kept(read_manifest(spec), spec)
    with named(spec) as path:
        return kept(with_groups(_read(checked_format(spec, path), spec, path, bench), spec), spec)


@contextmanager
def named(spec: Data) -> Iterator[Path]:
    """Yield the path of the data, which is in every error. Raises DataError for what cannot be read."""
    path = Path(os.path.abspath(os.path.expanduser(spec.path)))
    try:
        yield path
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {why(error)}") from error


def refuse_no_images(spec: Data, task: AnyTask) -> None:
    """Raise DataError for what can be seen to be no images before any is looked at: a file of no kind that is
    known here, or a folder without folders of classes. It needs no torch."""
    if spec.own or is_uri(spec.path) or is_manifest(spec):
        return
    with named(spec) as path:
        if checked_format(spec, path) == "folder" and task.labelled == "image":
            folder.check_not_wrapped(path)


def checked_format(spec: Data, path: Path) -> DataFormat:
    """Return the format of the data at a path. Raises DataError for fields of other formats."""
    usable_path(str(path))
    form = _format(spec, path)
    if form not in ("digits", "torchvision") and not path.exists():
        raise DataError(f"data.path: {path} does not exist")
    if spec.root is not None and form != "datasets":  # a manifest is read before
        raise DataError(
            "data.root: only a manifest's images lie below it, and those that a folder saved by Hugging Face "
            f"datasets names by path; {path} has format {form}"
        )
    if spec.columns != Columns() and form not in ("manifest", "datasets"):
        raise DataError(
            "data.columns: a manifest has columns, and a folder saved by Hugging Face datasets; "
            f"{path} has format {form}"
        )
    if form not in ("folder", "manifest", "datasets"):
        refuse_excluded(spec, f"{path} (format {form})")
    return form


def _read(form: DataFormat, spec: Data, path: Path, bench: Bench) -> Collection:
    match form:
        case "digits":
            return read_digits()
        case "folder":
            return folder.read(path, PartChoice.of(spec))
        case "manifest":
            return read_manifest(spec)
        case "datasets":
            return saved_dataset.read(path, spec)
        case "npz":
            return read_npz(path, spec.parts_left_out)
        case "idx":
            return read_idx(path if path.is_dir() else path.parent, spec.parts_left_out)
        case "torchvision":
            return torchvision_sets.read(spec.name, path, bench.may_fetch, spec.parts_left_out)
        case _:
            assert_never(form)


def _format(spec: Data, path: Path) -> DataFormat:
    """Return the format in the section, or else the one that the path shows;
    a folder called digits is `./digits`."""
    if spec.format == "own":
        raise DataError(
            f"data.format: own: {spec.path} is code of yours, and a file names no code: give the images from "
            f"Python, as train(recipe, data={spec.path}) or search(study, data={spec.path})"
        )
    if spec.format != "auto":
        return spec.format
    if spec.name is not None:
        return "torchvision"
    if spec.path == "digits":
        return "digits"
    if path.is_dir():
        if saved_dataset.is_saved_dataset(path):
            return "datasets"
        return "idx" if is_idx_folder(path) else "folder"
    if path.suffix == ".npz":
        return "npz"
    if IDX_NAME.fullmatch(path.name):
        return "idx"
    problem = "is no data set known here" if path.exists() else "does not exist"
    raise DataError(f"data.path: {path} {problem}; expected {DATA_IN_WORDS}")
