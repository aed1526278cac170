"""A few training images of each class, small enough for a page, kept in the search's folder once drawn."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from pydantic import ValidationError

from search.learning.search import Search
from search.reporting.answers import thumbnail
from search.reporting.content import ClassSamples, Samples
from trainable.array_types import Integers
from trainable.errors import UserError
from trainable.files.regular import read_regular
from trainable.recipe.yamlfile import write_whole

if TYPE_CHECKING:  # torch takes seconds to import
    from trainable.data import DataSet

SAMPLES_FILE = "samples.json"
LARGEST_SAMPLES = 2**24  # so many bytes are read
PER_CLASS = 4
MOST_CLASSES = 100  # of more, the first are shown
MOST_CHARACTERS = 800_000  # of all pictures; once there are so many, no class gets another one
SIDE = 64  # pixels of an image that is read from a file


def samples_of(search: Search, images: Callable[[], DataSet]) -> Samples:
    """Return some training images of each class: those in the search's folder, or drawn from `images`.

    Raises UserError where the classes are not those of whole images, and where images are not at hand.
    """
    if search.info.task_kind != "classification" or not search.info.class_counts:
        raise UserError("a training image has no class")
    file = search.folder / SAMPLES_FILE
    with suppress(OSError, ValidationError):
        kept = Samples.model_validate_json(read_regular(file, LARGEST_SAMPLES))
        if kept.data == search.info.digest:
            return kept
    drawn = Samples(data=search.info.digest, classes=tuple(_drawn(images())))
    with suppress(OSError):  # a folder that cannot be written to has them drawn again next time
        write_whole(file, drawn.model_dump_json().encode())
    return drawn


def _drawn(data: DataSet) -> list[ClassSamples]:
    """Return the samples of each class. None gets its second image before each has one, and so on, so that
    all fit on a page."""
    from trainable.checks.sampling import pixels

    info, labels = data.info, data.train.labels
    shown = range(min(len(info.classes), MOST_CLASSES))
    chosen = {label: _spread(np.flatnonzero(labels == label)) for label in shown}
    pictures: dict[int, list[str]] = {label: [] for label in shown}
    characters = 0
    for turn in range(PER_CLASS):
        having = [label for label in shown if turn < len(chosen[label])]
        positions = np.array([chosen[label][turn] for label in having], np.int64)
        for label, image in zip(having, pixels(data, data.train, positions, SIDE), strict=True):
            if turn and characters > MOST_CHARACTERS:
                break
            pictures[label].append(thumbnail(image))
            characters += len(pictures[label][-1])
    return [
        ClassSamples(
            name=info.classes[label], images=info.class_counts[label], thumbnails=tuple(pictures[label])
        )
        for label in shown
    ]


def _spread(positions: Integers) -> Integers:
    """Return at most PER_CLASS of some positions, evenly spaced: neighbours are often of one series."""
    count = min(PER_CLASS, len(positions))
    return positions[np.linspace(0, len(positions) - 1, count).round().astype(np.int64)]
