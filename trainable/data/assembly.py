"""Loads labelled images by name or path: read, split, measured and checked.

Small sets are held decoded, as uint8 arrays that a process or Ray's object store can share; larger ones stay
in their files and are decoded while training. `loading` turns either into batches. A person's own function
may make a data set as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trainable.bench import HERE, ON_CPU, Bench, DeviceKind
from trainable.data.array_files import IDX_NAME
from trainable.data.arrays import Arrays, collect
from trainable.data.dataset import DataSet
from trainable.data.decode import Form, Resize, decode, raise_broken
from trainable.data.groups import groups_by_part, numbered, series_of, shared_groups, with_groups
from trainable.data.image_cache import files_digest, make_cache
from trainable.data.info import DataInfo
from trainable.data.kept import kept
from trainable.data.manifest import is_manifest
from trainable.data.measure import (
    LARGEST_SIDE,
    SAMPLE,
    Histograms,
    channels_and_side,
    count_values,
    deep_span,
    detail_size_of,
    may_be_held,
    mean_and_std,
    membership,
    sample,
    span,
    stored_files,
)
from trainable.data.part_names import refuse_excluded
from trainable.data.parts import ArrayPart, FilePart, Members, Part
from trainable.data.reading import read
from trainable.data.remote_data import cached
from trainable.data.source import Collection, Selection
from trainable.data.split import members_of
from trainable.errors import DataError, code_named
from trainable.files.store import Store, is_uri
from trainable.recipe.data import Data, Split
from trainable.recipe.training import Stretch
from trainable.stages import stage

BLOCK = 256  # so many images of a sample are in memory at once


@stage("reading the images")
def load(
    spec: Data,
    *,
    resize: Resize | None = None,
    bench: Bench = ON_CPU,
    most_bytes: int | None = None,
) -> DataSet:
    """Load the labelled images that a recipe's `data` section describes, split, measured and checked.

    Data behind a URI are copied to this machine first, once. `resize` is the recipe's `evaluation.resize`
    (stretching by default). Every image is decoded if the set is held in memory, else 2,000 of them; it is
    not held if it takes more than `most_bytes`. Raises DataError for whatever cannot be used, with all broken
    images.
    """
    collection = with_copy(spec, lambda here: read(here, bench))
    return _assemble(collection, spec, resize or Stretch(), bench, most_bytes)


def stored_side(spec: Data, *, bench: Bench = HERE) -> int | None:
    """Return the median shorter side in pixels of a sample of the training images, as they are stored.

    It reads 2,000 headers at most, after a copy of files behind a URI. None if no image opens, which decoding
    will explain. Raises DataError as `load` does.
    """
    return shorter_side(stored_parts(spec, bench=bench)[0]["train"])


def stored_parts(spec: Data, *, bench: Bench = HERE) -> tuple[Members, tuple[str, ...]]:
    """Return the images of each part as they are stored, in the order of the part, and the classes' names.

    It does not matter whether a data set holds them decoded. Files behind a URI are copied first, once.
    Raises DataError as `load` does.
    """
    collection = with_copy(spec, lambda here: read(here, bench))
    return members_of(collection, spec), collection.classes


def shorter_side(images: Selection) -> int | None:
    """Return the median shorter side in pixels of a sample of images as they are stored; None if none
    opens."""
    measured = channels_and_side(sample(images))
    return None if measured is None else measured[1]


def with_copy(spec: Data, read: Callable[[Data], Collection]) -> Collection:
    """Return what is read of a section; data behind a URI are copied to this machine first, once."""
    here = copied(spec)
    collection = read(here)
    return collection if here is spec else replace(collection, path=spec.path, copy=Path(here.path))


def copied(spec: Data) -> Data:
    """Return the section with the path of a copy where its data are behind a URI."""
    if not is_uri(spec.path) or is_manifest(spec):
        return spec
    if IDX_NAME.fullmatch(Store(spec.path).name):
        raise DataError(f"data.path: {spec.path} is one of several IDX files; give the URI of their folder")
    return spec.model_copy(update={"path": str(cached(spec.path))})


def from_arrays(
    train: Arrays,
    validation: Arrays | None = None,
    test: Arrays | None = None,
    *,
    classes: tuple[str, ...] | None = None,
    spec: Data | None = None,
    bench: Bench = ON_CPU,
) -> DataSet:
    """Return a person's own arrays as a data set.

    Each part is images uint8 [N, H, W] or [N, H, W, 1 or 3], and integer labels [N]. Parts that are missing
    are split off as `spec` says; its path is only a name here. Raises DataError.
    """
    parts: dict[Split, Arrays | None] = {"train": train, "validation": validation, "test": test}
    given = {part: arrays for part, arrays in parts.items() if arrays is not None}
    return of_parts(given, spec or Data(path="arrays"), classes=classes, bench=bench)


def of_parts(
    parts: Mapping[Split, Arrays],
    spec: Data,
    *,
    classes: tuple[str, ...] | None = None,
    resize: Resize | None = None,
    bench: Bench = ON_CPU,
) -> DataSet:
    """Return the arrays of these parts as a data set, as `from_arrays` does, made square by `resize`
    (stretching by default). Raises DataError."""
    refuse_excluded(spec, "a set of arrays")
    found = {part: arrays for part, arrays in parts.items() if part not in spec.parts_left_out}
    collection = kept(with_groups(collect(spec.path, spec.format, found, classes), spec), spec)
    return _assemble(collection, spec, resize or Stretch(), bench)


def _assemble(
    collection: Collection,
    spec: Data,
    resize: Resize,
    bench: Bench,
    most_bytes: int | None = None,
) -> DataSet:
    members = members_of(collection, spec)
    form = _form(members["train"], spec, resize, bench.kind)
    size = sum(len(each.indices) for each in members.values()) * form.channels * form.side**2
    hold = spec.in_memory if spec.in_memory is not None else may_be_held(size, bench.kind, most_bytes)
    parts, counts = _held(members, form, spec.path) if hold else _streamed(members, form, spec.path)
    mean, std = mean_and_std(counts)
    detail = None if hold else detail_size_of(members["train"], form)
    stored = stored_files(members, collection.classes)
    which = membership(members, stored.size)
    info = DataInfo(
        path=collection.path,
        format=collection.format,
        classes=collection.classes,
        channels=form.channels,
        image_size=form.side,
        train_images=len(parts["train"]),
        validation_images=len(parts["validation"]),
        test_images=len(parts["test"]) if "test" in parts else 0,
        class_counts=tuple(np.bincount(parts["train"].labels, minlength=len(collection.classes)).tolist()),
        mean=mean,
        std=std,
        flips=spec.flips if spec.flips is not None else collection.flips,
        digest=which.digest,
        in_memory=hold,
        detail_size=detail,
        interpolation=form.interpolation,
        stored=stored.names,
        span=span(counts),
        deep_span=deep_span(members["train"]),
        left_out=tuple(collection.classes_left_out),
        whole=which.whole,
    )
    files = files_digest(which, stored)
    groups = None if collection.groups is None else groups_by_part(members, collection.groups)
    return DataSet(
        info,
        parts["train"],
        parts["validation"],
        parts.get("test"),
        resize,
        copy=collection.copy,
        objects=collection.objects,
        cache=None if hold else make_cache(spec.cache, members, form, detail, files),
        files=files,
        groups=None if groups is None else numbered(groups),
        shared=() if groups is None else shared_groups(groups),
        in_series=series_of(members, collection.classes) if groups is None else None,
        inner_folders=collection.inner_folders,
    )


def _form(train: Selection, spec: Data, resize: Resize, device_kind: DeviceKind) -> Form:
    """Return what the images become: as the section says, else as most of a sample of them are."""
    channels, side, interpolation = spec.channels, spec.image_size, spec.interpolation or "bilinear"
    if channels is None or side is None:
        measured = channels_and_side(sample(train))
        if measured is None:  # decoding will say why
            return Form(channels or 3, side or LARGEST_SIDE[device_kind], resize, interpolation)
        channels = channels or measured[0]
        side = side or max(4, min(measured[1], LARGEST_SIDE[device_kind]))
    return Form(channels, side, resize, interpolation)


def _held(members: Mapping[Split, Selection], form: Form, where: str) -> tuple[dict[Split, Part], Histograms]:
    """Decode every part, and count how often each value occurs in the training images.

    Raises DataError naming the broken images of all parts.
    """
    pixels, faults = {}, []
    for part, selection in members.items():
        pixels[part], broken = decode(selection, form)
        faults.extend(broken)
    raise_broken(faults, sum(map(len, pixels.values())), where)
    parts: dict[Split, Part] = {part: ArrayPart(pixels[part], members[part].labels) for part in members}
    return parts, count_values(pixels["train"])


def _streamed(
    members: Mapping[Split, Selection], form: Form, where: str
) -> tuple[dict[Split, Part], Histograms]:
    """Leave every part in its files,
    and count how often each value occurs in a sample of the training images.

    The sample of SAMPLE images is spread over the parts by their sizes; DataError names its broken images.
    """
    total = sum(len(selection.indices) for selection in members.values())
    counts = np.zeros((form.channels, 256), np.int64)
    faults, looked_at = [], 0
    for part, selection in members.items():
        some = sample(selection, max(1, SAMPLE * len(selection.indices) // total))
        for start in range(0, len(some.indices), BLOCK):
            pixels, broken = decode(Selection(some.source, some.indices[start : start + BLOCK]), form)
            faults.extend(broken)
            looked_at += len(pixels)
            if part == "train":
                counts += count_values(pixels)
    raise_broken(faults, looked_at, where)
    return {part: FilePart(selection) for part, selection in members.items()}, counts


# These fields choose images; a DataSet has chosen them already
CHOOSING = ("exclude", "exclude_parts", "min_images", "train_limit", "validation_seed")

# Returns a DataSet (`from_arrays`, `load`), or images and labels, which are split as the recipe says
MakeData = Callable[[], Any]


def make_own(spec: Data, make: MakeData, *, resize: Resize | None = None, bench: Bench = ON_CPU) -> DataSet:
    """Return the data set that a person's function makes, called by the name in `spec.path`.

    Arrays are images uint8 [N, H, W] or [N, H, W, 1 or 3] and integer labels [N], which `spec` splits. A
    DataSet stays as it is. Raises DataError for anything else, for an error of the function, and where `spec`
    asks for other images than a DataSet has.
    """
    with code_named(f"data={spec.path}", DataError):
        made = make()
    if isinstance(made, DataSet):
        _check_chosen(spec, made)
        return replace(made, info=replace(made.info, path=spec.path, format="own"))
    match made:
        case (images, labels):
            arrays = np.asarray(images), np.asarray(labels)
            return of_parts({"train": arrays}, spec, resize=resize, bench=bench)
        case _:
            raise DataError(
                f"data={spec.path}: expected a DataSet, or images and labels as two arrays, got "
                f"{type(made).__name__}"
            )


def _check_chosen(spec: Data, made: DataSet) -> None:
    """Raise DataError for fields that would do nothing, as a DataSet has its images already."""
    which = f"the DataSet that data={spec.path} returns"
    if spec.group is not None and not made.grouped:
        raise DataError(f"data.group: {which} knows no groups")
    fields = [
        *(f"data.{name}" for name in CHOOSING if getattr(spec, name) not in (None, ())),
        *(f"data.{part}: none" for part in spec.parts_left_out),
    ]
    if fields:
        raise DataError(
            f"{', '.join(fields)}: {which} stays as it is; return images and labels instead, or make it by "
            "from_arrays(..., spec=Data(...)) with these fields there, and take them out here"
        )
