"""Leaves out the parts, images and classes that a recipe does not want, and checks what is left."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trainable.array_types import Integers
from trainable.data.excluded import check_no_class_lost, excluded
from trainable.data.part_names import none_leaves_out
from trainable.data.source import LEFT_OUT, Collection, Source
from trainable.errors import DataError, listed, quoted
from trainable.recipe.data import Data, Split

NAMED = 20  # so many classes are named; the rest are counted


def kept(collection: Collection, spec: Data) -> Collection:
    """Return the parts and classes that are to be used, after all formats alike have been read.

    A part that the recipe leaves out is dropped, and an image that `data.exclude` lists. `data.min_images`
    leaves out each class with fewer training images, as the data have them before anything is split off.
    Raises DataError if fewer than two classes are left, a class has no training image, or a part lacks a
    class, unless `data.unscored` allows that; and where the list of `data.exclude` is the cause, names it.
    An image without a label, which a format lets pass where there is such a list, must be in it.
    """
    sources = {part: each for part, each in collection.parts.items() if part not in spec.parts_left_out}
    out = excluded(sources, spec)
    _check_labelled(collection.path, sources, out)
    before = {part: _counts(each.labels, len(collection.classes)) for part, each in sources.items()}
    labels = {part: np.where(out[part], LEFT_OUT, each.labels) for part, each in sources.items()}
    counts = {part: _counts(each, len(collection.classes)) for part, each in labels.items()}
    few = np.flatnonzero(counts["train"] < (spec.min_images or 0))
    if spec.min_images is None:
        check_no_class_lost(spec, collection.classes, before["train"], counts["train"])
    of_class = dict(zip(collection.classes, counts["train"].tolist(), strict=True))
    left_out = {collection.classes[label]: of_class[collection.classes[label]] for label in few.tolist()}
    chosen = np.setdiff1d(np.flatnonzero(sum(counts.values())), few)
    classes = tuple(collection.classes[label] for label in chosen.tolist())
    _check_apart(collection.path, classes)
    _check_two(collection.path, classes, left_out)
    present = {part: each[chosen] > 0 for part, each in counts.items()}
    lost = {part: (before[part] > 0)[chosen] & ~each for part, each in present.items()}
    _check_same(collection.path, classes, present, lost, spec.unscored)
    numbers = np.full(len(collection.classes) + 1, LEFT_OUT, np.int64)  # the last one is that of LEFT_OUT
    numbers[chosen] = np.arange(len(chosen))
    return replace(
        collection,
        classes=classes,
        parts={part: labelled(each, numbers[labels[part]]) for part, each in sources.items()},
        groups=None
        if collection.groups is None
        else {part: each for part, each in collection.groups.items() if part in sources},
        classes_left_out=left_out,
    )


def labelled(source: Source, labels: Integers) -> Source:
    """Return a source's images with other labels; the images are shared, and not read."""
    other = copy(source)
    other.labels = labels
    return other


def _counts(labels: Integers, classes: int) -> Integers:
    return np.bincount(labels[labels != LEFT_OUT], minlength=classes)


def _check_labelled(
    where: str, sources: Mapping[Split, Source], out: Mapping[Split, NDArray[np.bool_]]
) -> None:
    for part, source in sources.items():
        if odd := np.flatnonzero((source.labels == LEFT_OUT) & ~out[part]).tolist():
            raise DataError(
                f"{where}: there is no label for {len(odd):,} of {len(source):,} images of the {part} part: "
                f"{listed([source.name(index) for index in odd], NAMED)}; write it, or add them to the "
                f"list of data.exclude{none_leaves_out(part)}"
            )


def _check_apart(where: str, classes: tuple[str, ...]) -> None:
    """Raise DataError for two classes that nobody can tell apart where they are shown."""
    first = dict[str, str]()
    for name in classes:
        if (other := first.setdefault(name.strip(), name)) != name:
            raise DataError(
                f"{where}: the classes {quoted(other)} and {quoted(name)} differ in spaces around their "
                "names alone; expected one name for one class: rename one of them, in all parts"
            )


def _check_two(where: str, classes: tuple[str, ...], left_out: Mapping[str, int]) -> None:
    if len(classes) > 1:
        return
    which = f"there is one class only, {classes[0]}" if classes else "there is no class"
    few = [f"{name} ({count})" for name, count in left_out.items()]
    also = f", after data.min_images has left out {listed(few, NAMED)}; lower it" if few else ""
    raise DataError(f"{where}: {which}; two are needed{also}")


def _check_same(
    where: str,
    classes: tuple[str, ...],
    present: Mapping[Split, NDArray[np.bool_]],
    lost: Mapping[Split, NDArray[np.bool_]],
    unscored: str,
) -> None:
    """Raise DataError with every class that a part lacks, and what can be done about it; `lost` are those
    that `data.exclude` took away."""
    faults, advice = list[str](), dict[str, None]()
    trained = present["train"]
    for part, has in present.items():
        odd = [classes[label] for label in np.flatnonzero(has & ~trained)]
        lacking = [classes[label] for label in np.flatnonzero(trained & ~has)] if unscored == "refuse" else []
        if not has.any():
            raise DataError(f"{where}: no image of the {part} part is left{none_leaves_out(part)}")
        if lacking:
            faults.append(_in_words(lacking, f"not in the {part} part"))
            if gone := [classes[label] for label in np.flatnonzero(trained & lost[part])]:
                named = listed(gone, NAMED)
                advice[f"data.exclude lists all {part} images of {named}: take some out of the list"] = None
            advice["data.unscored: allow trains on classes that have no score"] = None
            advice["data.min_images: N leaves out classes with fewer than N training images"] = None
        if odd:
            faults.append(_in_words(odd, f"only in the {part} part"))
            advice["data.min_images: 1 leaves out classes without training images"] = None
        if (odd or lacking) and part != "train":
            advice[none_leaves_out(part).removeprefix("; ")] = None
    if faults:
        raise DataError(
            "\n  ".join([f"{where}: the parts have different classes: {'; '.join(faults)}", *advice])
        )


def _in_words(classes: list[str], where: str) -> str:
    verb = "is" if len(classes) == 1 else "are"
    shown = [name if name == name.strip() else quoted(name) for name in classes]
    return f"{listed(shown, NAMED)} {verb} {where}"
