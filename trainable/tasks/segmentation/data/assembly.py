"""Makes a data set of images with masks, which keep the sizes that they are stored at."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainable.array_types import Integers
from trainable.bench import HERE, ON_CPU, Bench, DeviceKind
from trainable.data.assembly import copied, shorter_side, with_copy
from trainable.data.dataset import DataSet
from trainable.data.decode import raise_broken
from trainable.data.groups import groups_by_part, numbered, series_of, shared_groups
from trainable.data.info import DataInfo
from trainable.data.measure import (
    DIGEST_PIXELS,
    SAMPLE,
    Histograms,
    channels_and_side,
    count_values,
    deep_span,
    may_be_held,
    mean_and_std,
    membership,
    sample,
    span,
    stored_files,
)
from trainable.data.parts import Members, Part
from trainable.data.source import Channels, Collection, Pixels, Selection, Survey
from trainable.data.split import members_of
from trainable.errors import DataError, listed, quoted
from trainable.recipe.data import Data, Split
from trainable.recipe.tasks import Masks, window_side
from trainable.stages import stage
from trainable.tasks.segmentation.data.parts import (
    MaskedFilePart,
    MaskedPart,
    MaskedSource,
    decode_planes,
    starts_of,
)
from trainable.tasks.segmentation.data.reading import read, read_pairs


@stage("reading the images")
def load(
    spec: Data,
    masks: Masks,
    *,
    bench: Bench = ON_CPU,
    most_bytes: int | None = None,
) -> DataSet:
    """Load the images with masks that a recipe's `data` section describes, split, measured and checked.

    The rest is as for labelled images (`trainable.data.assembly.load`), except that images keep their size.
    Raises DataError.
    """
    return assemble(_collection(spec, masks, bench), spec, bench.kind, most_bytes)


def stored_side(spec: Data, masks: Masks, *, bench: Bench = HERE) -> int | None:
    """Return what that of labelled images does, without reading a mask."""
    source = read_pairs(copied(spec), bench, masks).parts["train"].images
    return shorter_side(Selection(source, np.arange(len(source))))


def stored_parts(spec: Data, masks: Masks, *, bench: Bench = HERE) -> tuple[Members, tuple[str, ...]]:
    """Return the images of each part as they are stored, in the order of the part, and the classes' names.
    Raises DataError."""
    collection = _collection(spec, masks, bench)
    return members_of(collection, spec), collection.classes


def _collection(spec: Data, masks: Masks, bench: Bench) -> Collection:
    return with_copy(spec, lambda here: read(here, bench, masks))


def assemble(
    collection: Collection, spec: Data, device_kind: DeviceKind, most_bytes: int | None = None
) -> DataSet:
    """Return the data set of a collection whose images have masks. Raises DataError with the broken images,
    and for a class that no training image shows."""
    members = members_of(collection, spec)
    surveys = {part: _survey_of(collection, chosen) for part, chosen in members.items()}
    _check_shown(collection, spec, surveys)
    channels = spec.channels or (channels_and_side(sample(members["train"])) or (3, 0))[0]
    size = sum(int(each.sizes.prod(axis=1).sum()) for each in surveys.values()) * (channels + 1)
    hold = spec.in_memory if spec.in_memory is not None else may_be_held(size, device_kind, most_bytes)
    make = _held if hold else _streamed
    parts, counts = make(members, surveys, channels, spec.path)
    mean, std = mean_and_std(counts)
    shown, longer = surveys["train"].pixels, longer_side(surveys["train"].sizes)
    stored = stored_files(members, collection.split_by)
    which = membership(members, stored.size, {part: _targets(survey) for part, survey in surveys.items()})
    info = DataInfo(
        path=collection.path,
        format=collection.format,
        classes=collection.classes,
        channels=channels,
        image_size=spec.image_size or window_side(longer, gpu=device_kind == "cuda"),
        train_images=len(parts["train"]),
        validation_images=len(parts["validation"]),
        test_images=len(parts["test"]) if "test" in parts else 0,
        class_counts=tuple((shown > 0).sum(axis=0).tolist()),
        mean=mean,
        std=std,
        flips=spec.flips if spec.flips is not None else collection.flips,
        digest=which.digest,
        in_memory=hold,
        interpolation=spec.interpolation or "bilinear",
        stored=stored.names,
        span=span(counts),
        deep_span=deep_span(members["train"]),
        task_kind="segmentation",
        pixel_counts=tuple(shown.sum(axis=0).tolist()),
        longer_side=longer,
        found=collection.found,
        mask_values=_source(members["train"]).code.written,
        whole=which.whole,
    )
    groups = None if collection.groups is None else groups_by_part(members, collection.groups)
    return DataSet(
        info,
        parts["train"],
        parts["validation"],
        parts.get("test"),
        copy=collection.copy,
        objects=collection.objects,
        groups=None if groups is None else numbered(groups),
        shared=() if groups is None else shared_groups(groups),
        in_series=series_of(members, collection.split_by, labelled=False) if groups is None else None,
    )


def longer_side(sizes: Integers) -> int:
    """Return the median of the longer sides of images of these sizes [N, 2]."""
    return int(np.median(sizes.max(axis=1)))


def _survey_of(collection: Collection, chosen: Selection) -> Survey:
    """Return what the masks of some images show."""
    assert collection.surveys is not None
    found = next(
        survey for part, survey in collection.surveys.items() if collection.parts[part] is chosen.source
    )
    rows = chosen.indices
    return Survey(found.sizes[rows], found.pixels[rows], found.ignored[rows], found.digests[rows])


def _check_shown(collection: Collection, spec: Data, surveys: Mapping[Split, Survey]) -> None:
    shown = {part: each.pixels.sum(axis=0) for part, each in surveys.items()}
    if not (missing := np.flatnonzero(shown["train"] == 0).tolist()):
        return
    names = [collection.classes[label] for label in missing]
    split_off = [part for part in shown if part != "train" and part not in collection.parts]
    elsewhere = any(shown[part][missing].any() for part in split_off)
    advice = [
        *(["split anew (data.split_seed), since other parts show it"] if elsewhere else []),
        *(["raise data.train_limit"] if spec.train_limit is not None else []),
    ]
    if len(collection.classes) - len(missing) > 1:  # fewer could not be learnt
        advice += [
            f"name what is not to be learnt in task.masks.void: [{', '.join(map(quoted, names))}]",
            "set task.masks.values: binary if the masks number objects, which makes one class of them all",
        ]
    else:
        advice.append(
            "see that task.masks.folder (of a manifest task.masks.column) names the masks, and that they "
            "show it"
        )
    found = f"; {collection.found}" if collection.found else ""
    raise DataError(
        f"{collection.path}: no training image shows the class {listed(names, 20)}; expected each class in "
        f"one or more: {'; or '.join(advice)}{found}"
    )


def _targets(survey: Survey) -> list[str]:
    """Return what the digest knows of each mask: how much it shows of each class, and where."""
    return [
        f"{shown} {where.tobytes().hex()}"
        for shown, where in zip(survey.pixels.tolist(), survey.digests, strict=True)
    ]


def _held(
    members: Members, surveys: Mapping[Split, Survey], channels: Channels, where: str
) -> tuple[dict[Split, Part], Histograms]:
    """Decode every part, and count how often each value occurs in the training images."""
    parts, faults, looked_at = dict[Split, Part](), [], 0
    for part, chosen in members.items():
        sizes = surveys[part].sizes
        values, broken = decode_planes(_source(chosen), chosen.indices, sizes, channels)
        names = tuple(map(chosen.source.name, chosen.indices.tolist()))
        parts[part] = MaskedPart(values, sizes, chosen.labels, names)
        faults += broken
        looked_at += len(sizes)
        if part == "train":
            counts = _count(values, sizes, channels)
    raise_broken(faults, looked_at, where)
    return parts, counts


def _streamed(
    members: Members, surveys: Mapping[Split, Survey], channels: Channels, where: str
) -> tuple[dict[Split, Part], Histograms]:
    """Leave every part in its files, and count how often each value occurs in a sample of the training
    images, of DIGEST_PIXELS pixels at most."""
    rows = np.sort(np.random.default_rng(0).permutation(len(surveys["train"].sizes))[:SAMPLE])
    sizes = surveys["train"].sizes[rows]
    fits = sizes.prod(axis=1).cumsum() <= DIGEST_PIXELS
    fits[0] = True
    rows, sizes = rows[fits], sizes[fits]
    values, broken = decode_planes(_source(members["train"]), members["train"].indices[rows], sizes, channels)
    raise_broken(broken, len(rows), where)
    parts: dict[Split, Part] = {
        part: MaskedFilePart(chosen, surveys[part].sizes) for part, chosen in members.items()
    }
    return parts, _count(values, sizes, channels)


def _source(chosen: Selection) -> MaskedSource:
    assert isinstance(chosen.source, MaskedSource)
    return chosen.source


def _count(values: Pixels, sizes: Integers, channels: Channels) -> Histograms:
    counts = np.zeros((channels, 256), np.int64)
    for start, (height, width) in zip(starts_of(sizes, channels + 1), sizes, strict=True):
        counts += count_values(
            values[start : start + channels * height * width].reshape(1, channels, height, width)
        )
    return counts
