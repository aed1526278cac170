"""Loads a data set by name or path, as its training,
validation and test parts with all that is known of them.

Small sets are held decoded, as uint8 arrays that a process or Ray's object store can share; larger ones stay
in their files and are decoded while training. `loading` turns either into batches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from trainable.data import idx
from trainable.data.arrays import Arrays, collect
from trainable.data.decode import Channels, Form, Resize, decode, raise_broken
from trainable.data.groups import Shared, groups_by_part, numbered, shared_groups, shared_series, with_groups
from trainable.data.idle_readers import IdleReaders
from trainable.data.image_cache import ImageCache, Say, make_cache
from trainable.data.manifest import is_manifest
from trainable.data.measure import (
    LARGEST_SIDE,
    SAMPLE,
    Counts,
    DeviceKind,
    channels_and_side,
    count_values,
    detail_size_of,
    may_be_held,
    mean_and_std,
    membership_digest,
    sample,
    stored_files,
)
from trainable.data.members import members_of
from trainable.data.parts import ArrayPart, FilePart, Members, Part, Views
from trainable.data.reading import read
from trainable.data.remote_data import cached, cached_objects, data_root
from trainable.data.source import Collection, Flip, Integers, Selection, Split
from trainable.errors import DataError
from trainable.files.paths import without_tilde
from trainable.files.store import Store, is_uri
from trainable.recipe.data import Data, Interpolation
from trainable.recipe.training import Stretch

BLOCK = 256
"""So many images of a sample are in memory at once."""


@dataclass(frozen=True)
class DataInfo:
    """Holds what is known of a data set, as plain data."""

    path: str
    format: str
    classes: tuple[str, ...]
    channels: Channels
    image_size: int
    """This is the side in pixels."""
    train_images: int
    validation_images: int
    test_images: int
    class_counts: tuple[int, ...]
    """These are the numbers of training images of each class."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    """Mean and deviation are those of each channel of the training images, on [0, 1], or of a sample of them
    if they are not in memory."""
    flips: tuple[Flip, ...]
    digest: str
    """The digest covers which image is in which part with which label, in whatever form they are stored."""
    in_memory: bool
    detail_size: int | None = None
    """Resized crops are cut from squares of this side, if most images have more pixels than `image_size` and
    are read from files."""
    interpolation: Interpolation = "bilinear"
    """Images were resized by this filter."""
    stored: str = ""
    """This digest covers each image's name, class and stored size too; empty if an older version measured."""

    def __post_init__(self) -> None:
        """Raises ValueError for what no data set is: it may come from a file that somebody has changed."""
        if len(self.classes) < 2 or len(self.class_counts) != len(self.classes) or min(self.class_counts) < 1:
            raise ValueError("expected two classes or more, and training images of each")
        if min(self.train_images, self.validation_images, self.image_size) < 1 or self.test_images < 0:
            raise ValueError("expected images to train and to validate on, with pixels")
        if not len(self.mean) == len(self.std) == self.channels or not min(self.std) > 0.0:
            raise ValueError(f"expected mean and deviation of {self.channels} channels, deviations above 0")

    def tree(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> DataInfo:
        """Reads what `tree` returned, after it went through JSON. Raises ValidationError for other data."""
        return TypeAdapter(cls).validate_json(json.dumps(tree), strict=True)


@dataclass(frozen=True, eq=False)
class DataSet:
    """Holds the three parts. It is cheap to pickle and to share: arrays travel as buffers."""

    info: DataInfo
    train: Part
    validation: Part
    test: Part | None
    """No trial sees this part; before a search it is only compared with the others."""
    resize: Resize = field(default_factory=Stretch)
    """This says how images are made square. Training crops act on the square, in memory and from files."""

    copy: Path | None = None
    """For data behind a URI, this is their copy on the machine that loaded them."""
    objects: tuple[str, ...] = ()
    """These are the URIs of a manifest's images, of which `copy` is the folder."""
    groups: Mapping[Split, Integers] | None = None
    """If it is known what stays in one part, such as a patient, these are the groups of each part's images,
    as numbers [n]."""
    shared: tuple[Shared, ...] = ()
    """These groups are in two parts; where none are known, these series are, by the names of the files."""
    cache: ImageCache | None = None
    """Machines may keep these images decoded on their disks."""
    crops: bool = True
    """This says whether training may ask for resized crops, for which the cache keeps larger squares."""
    idle_readers: IdleReaders = field(default_factory=IdleReaders)
    """Processes that read these images' files wait here from one run to the next."""

    @property
    def parts(self) -> dict[Split, Part]:
        """Returns the parts that exist, by name, in this order."""
        parts: dict[Split, Part] = {"train": self.train, "validation": self.validation}
        return parts if self.test is None else {**parts, "test": self.test}

    @property
    def grouped(self) -> bool:
        """Returns whether it is known what stays in one part, such as a patient."""
        return self.groups is not None

    @property
    def selections(self) -> Members:
        """Returns the images of each part that is read from files."""
        return {name: part.selection for name, part in self.parts.items() if isinstance(part, FilePart)}

    @property
    def form(self) -> Form:
        return Form(self.info.channels, self.info.image_size, self.resize, self.info.interpolation)

    def decoded_views(self) -> Views:
        """Returns the images that are decoded already: those in memory, or in this machine's cache."""
        held = {
            (name, self.info.image_size): part.images
            for name, part in self.parts.items()
            if isinstance(part, ArrayPart)
        }
        return held or (self.cache.views() if self.cache is not None else {})

    def be_here(self, say: Say = lambda line: None) -> None:
        """Makes sure that this machine has what training needs: a copy of files behind a URI, and the decoded
        images in its cache.

        Raises DataError if files cannot be copied, or not to the same path, if images are broken, and if a
        folder that `data.cache` names has no room.
        """
        self.copy_here()
        if self.cache is not None:
            self.cache.fill(self.selections, detail=self.crops, say=say)

    def copy_here(self) -> None:
        """Copies files behind a URI to this machine, once. Raises DataError as `be_here` does."""
        if self.copy is None or self.info.in_memory or self.copy.exists():
            return
        if self.copy.parents[1] != data_root():
            raise DataError(
                f"data.path: the copy of {self.info.path} is in {data_root()} on this machine and is "
                f"{self.copy} on the search's; set XDG_CACHE_HOME to the same folder on all"
            )
        if self.objects:
            cached_objects(self.objects, expected=self.copy.parent.name)
        else:
            cached(self.info.path, expected=self.copy.parent.name)

    def refuse_leaks(self, spec: Data) -> None:
        """Raises DataError if parts that the data define share a group, unless `data.leaks` allows it."""
        if self.grouped and self.shared and spec.leaks == "refuse":
            raise DataError(
                f"{self.info.path}: {'; '.join(map(str, self.shared))}: scores would reward memory. Put each "
                "group into one part, or set data.leaks=allow"
            )


def load(
    spec: Data,
    *,
    resize: Resize | None = None,
    device_kind: DeviceKind = "cpu",
    download: bool = False,
    most_bytes: int | None = None,
) -> DataSet:
    """Loads the data set that a recipe's `data` section describes, split, measured and checked.

    Data behind a URI are copied to this machine first, once. `resize` is the recipe's `evaluation.resize`
    (stretching by default). Every image is decoded if the set is held in memory, else 2,000 of them; it is
    not held if it takes more than `most_bytes`. Raises DataError for whatever cannot be used, with all broken
    images.
    """
    collection = _collection(spec, download)
    return _assemble(collection, spec, resize or Stretch(), device_kind, most_bytes)


def stored_side(spec: Data, *, download: bool = False) -> int | None:
    """Returns the median shorter side in pixels of a sample of the training images, as they are stored.

    It reads 2,000 headers at most, after a copy of files behind a URI. None if no image opens, which
    decoding will explain. Raises DataError as `load` does.
    """
    measured = channels_and_side(sample(stored_parts(spec, download=download)[0]["train"]))
    return None if measured is None else measured[1]


def stored_parts(spec: Data, *, download: bool = False) -> tuple[Members, tuple[str, ...]]:
    """Returns the images of each part as they are stored, in the order of the part, and the classes' names.

    It does not matter whether a data set holds them decoded. Files behind a URI are copied first, once.
    Raises DataError as `load` does.
    """
    collection = _collection(spec, download)
    return members_of(collection, spec), collection.classes


def _collection(spec: Data, download: bool) -> Collection:
    """Returns what the section names; data behind a URI are copied to this machine first, once."""
    if not is_uri(spec.path) or is_manifest(spec):
        return read(spec, download)
    if idx.NAME.fullmatch(Store(spec.path).name):
        raise DataError(f"data.path: {spec.path} is one of several IDX files; give the URI of their folder")
    copy = cached(spec.path)
    collection = read(spec.model_copy(update={"path": str(copy)}), download)
    return replace(collection, path=spec.path, copy=copy)


def from_arrays(
    train: Arrays,
    validation: Arrays | None = None,
    test: Arrays | None = None,
    *,
    classes: tuple[str, ...] | None = None,
    spec: Data | None = None,
    resize: Resize | None = None,
    device_kind: DeviceKind = "cpu",
) -> DataSet:
    """Returns a person's own arrays as a data set.

    Each part is images uint8 [N, H, W] or [N, H, W, 1 or 3], and integer labels [N]. Parts that are missing
    are split off as `spec` says; its path is only a name here. Raises DataError.
    """
    spec = spec or Data(path="arrays")
    parts: dict[Split, Arrays | None] = {"train": train, "validation": validation, "test": test}
    found = {part: arrays for part, arrays in parts.items() if arrays is not None}
    collection = with_groups(collect(spec.path, spec.format, found, classes), spec)
    return _assemble(collection, spec, resize or Stretch(), device_kind)


def resolve(spec: Data, info: DataInfo) -> Data:
    """Returns the section with everything that was measured or found filled in."""
    measured = ("path", "format", "channels", "image_size", "interpolation", "flips", "in_memory")
    found = {name: getattr(info, name) for name in measured}
    if spec.root is not None and not is_uri(spec.root):
        found["root"] = str(without_tilde(spec.root).absolute())
    return Data.model_validate({**dict(spec), **found})


def _assemble(
    collection: Collection,
    spec: Data,
    resize: Resize,
    device_kind: DeviceKind,
    most_bytes: int | None = None,
) -> DataSet:
    members = members_of(collection, spec)
    form = _form(members["train"], spec, resize, device_kind)
    size = sum(len(each.indices) for each in members.values()) * form.channels * form.side**2
    hold = spec.in_memory if spec.in_memory is not None else may_be_held(size, device_kind, most_bytes)
    parts, counts = _held(members, form, spec.path) if hold else _streamed(members, form, spec.path)
    mean, std = mean_and_std(counts)
    detail = None if hold else detail_size_of(members["train"], form)
    stored, digest = stored_files(members, collection.classes), membership_digest(members)
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
        digest=digest,
        in_memory=hold,
        detail_size=detail,
        interpolation=form.interpolation,
        stored=stored.names,
    )
    groups = None if collection.groups is None else groups_by_part(members, collection.groups)
    return DataSet(
        info,
        parts["train"],
        parts["validation"],
        parts.get("test"),
        resize,
        copy=collection.copy,
        objects=collection.objects,
        cache=None if hold else make_cache(spec.cache, members, form, detail, stored.times),
        groups=None if groups is None else numbered(groups),
        shared=shared_series(members, len(collection.classes)) if groups is None else shared_groups(groups),
    )


def _form(train: Selection, spec: Data, resize: Resize, device_kind: DeviceKind) -> Form:
    """Returns what the images become: as the section says, else as most of a sample of them are."""
    channels, side, interpolation = spec.channels, spec.image_size, spec.interpolation or "bilinear"
    if channels is None or side is None:
        measured = channels_and_side(sample(train))
        if measured is None:  # decoding will say why
            return Form(channels or 3, side or LARGEST_SIDE[device_kind], resize, interpolation)
        channels = channels or measured[0]
        side = side or max(4, min(measured[1], LARGEST_SIDE[device_kind]))
    return Form(channels, side, resize, interpolation)


def _held(members: Mapping[Split, Selection], form: Form, where: str) -> tuple[dict[Split, Part], Counts]:
    """Decodes every part, and counts how often each value occurs in the training images.

    Raises DataError naming the broken images of all parts.
    """
    pixels, faults = {}, []
    for part, selection in members.items():
        pixels[part], broken = decode(selection, form)
        faults.extend(broken)
    raise_broken(faults, sum(map(len, pixels.values())), where)
    parts: dict[Split, Part] = {part: ArrayPart(pixels[part], members[part].labels) for part in members}
    return parts, count_values(pixels["train"])


def _streamed(members: Mapping[Split, Selection], form: Form, where: str) -> tuple[dict[Split, Part], Counts]:
    """Leaves every part in its files,
    and counts how often each value occurs in a sample of the training images.

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
