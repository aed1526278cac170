"""A few training images of each class, small enough for a page, kept in the search's folder once drawn.

Of images with masks they are images that show the class: it has its colour there, and the rest is pale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, assert_never

import numpy as np
from pydantic import ValidationError

from search.learning.search import Search
from search.reporting.answers import thumbnail
from search.reporting.content import ClassSamples, Samples
from trainable.array_types import Floats, Integers
from trainable.errors import UserError
from trainable.files.regular import read_regular
from trainable.recipe.yamlfile import write_whole

if TYPE_CHECKING:  # torch takes seconds to import
    from trainable.data import DataInfo, DataSet

SAMPLES_FILE = "samples.json"
LARGEST_SAMPLES = 2**24  # so many bytes are read
PER_CLASS = 4
MOST_CLASSES = 100  # of more, the first are shown
MOST_CHARACTERS = 800_000  # of all pictures; once there are so many, no class gets another one
SIDE = 64  # pixels of an image that is read from a file
MASK_SIDE = 96  # no side of a picture with a mask is longer
LOOKED_AT = 240  # so many training images with masks are opened: a class may be in none of them


class Wanted(NamedTuple):
    """A picture to draw: an image, by its number, as one of a class."""

    label: int
    image: int


def samples_of(search: Search, images: Callable[[], DataSet]) -> Samples:
    """Return some training images of each class: those in the search's folder, or drawn from `images`.

    Raises UserError where the classes are not known, and where images are not at hand.
    """
    if not search.info.class_counts:
        raise UserError("a training image has no class")
    file = search.folder / SAMPLES_FILE
    with suppress(OSError, ValidationError):
        kept = Samples.model_validate_json(read_regular(file, LARGEST_SAMPLES))
        if kept.data == search.info.digest:
            return kept
    match search.info.task_kind:
        case "classification":
            classes = _of_labels(images())
        case "segmentation":
            classes = _of_masks(images())
        case other:
            assert_never(other)
    drawn = Samples(data=search.info.digest, classes=classes)
    with suppress(OSError):  # a folder that cannot be written to has them drawn again next time
        write_whole(file, drawn.model_dump_json().encode())
    return drawn


def _of_labels(data: DataSet) -> tuple[ClassSamples, ...]:
    from trainable.checks.sampling import pixels

    def draw(wanted: Sequence[Wanted]) -> Iterable[str]:
        positions = np.array([each.image for each in wanted], np.int64)
        return map(thumbnail, pixels(data, data.train, positions, SIDE))

    of_class = [np.flatnonzero(data.train.labels == label) for label in _shown_classes(data.info)]
    return _drawn(data.info, of_class, draw)


def _of_masks(data: DataSet) -> tuple[ClassSamples, ...]:
    """Return images that show much of a class: no less than half of those that show it."""
    from search.reporting.mask_answers import class_colours, in_hexadecimal, planes, small, with_class

    info, train = data.info, data.train
    # labels are strata here, so that images with a rare class are looked at, too
    strata = [np.flatnonzero(train.labels == stratum) for stratum in np.unique(train.labels)]
    of_each = max(PER_CLASS, LOOKED_AT // len(strata))
    pictures, shares = [], []
    for position in np.concatenate([_spread(each, of_each) for each in strata]).tolist():
        image, mask = planes(train, position, info.channels)
        shares.append(np.bincount(mask.ravel(), minlength=256) / mask.size)
        pictures.append(small(image, mask, MASK_SIDE))
    colours = class_colours(len(info.classes))

    def draw(wanted: Sequence[Wanted]) -> Iterable[str]:
        return (with_class(*pictures[each.image], each.label, colours[each.label]) for each in wanted)

    of_class = [_largest_half(np.array(shares)[:, label]) for label in _shown_classes(info)]
    return _drawn(info, of_class, draw, [in_hexadecimal(each) for each in colours])


def _largest_half(shares: Floats) -> Integers:
    """Return where the shares that are not 0 are no less than the middle one of them."""
    there = shares[shares > 0.0]
    return np.flatnonzero(shares >= np.median(there)) if len(there) else np.flatnonzero(there)


def _shown_classes(info: DataInfo) -> range:
    return range(min(len(info.classes), MOST_CLASSES))


def _drawn(
    info: DataInfo,
    of_class: Sequence[Integers],
    draw: Callable[[Sequence[Wanted]], Iterable[str]],
    colours: Sequence[str] | None = None,
) -> tuple[ClassSamples, ...]:
    """Return the samples of each class. None gets its second image before each has one, and so on, so that
    all fit on a page."""
    chosen = [_spread(each, PER_CLASS) for each in of_class]
    pictures: list[list[str]] = [[] for _ in chosen]
    characters = 0
    for turn in range(PER_CLASS):
        wanted = [Wanted(label, int(each[turn])) for label, each in enumerate(chosen) if turn < len(each)]
        for (label, _), picture in zip(wanted, draw(wanted), strict=True):
            if turn and characters > MOST_CHARACTERS:
                break
            pictures[label].append(picture)
            characters += len(picture)
    return tuple(
        ClassSamples(
            name=info.classes[label],
            images=info.class_counts[label],
            thumbnails=tuple(each),
            colour=colours[label] if colours is not None else "",
        )
        for label, each in enumerate(pictures)
    )


def _spread(positions: Integers, most: int) -> Integers:
    """Return at most so many of some positions, evenly spaced: neighbours are often of one series."""
    count = min(most, len(positions))
    return positions[np.linspace(0, len(positions) - 1, count).round().astype(np.int64)]
