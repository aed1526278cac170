"""Takes some of a data set's images, as pixels: enough to check it by, and few enough to be quick."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainable.data import ArrayPart, DataSet, Part
from trainable.data.source import Integers, Pixels
from trainable.data.split import some_of_each_class


def pixels(data: DataSet, part: Part, positions: Integers, side: int | None = None) -> Pixels:
    """Return images of a part as uint8 [n, C, side, side], at the data set's own side by default.

    Raises DataError naming images that cannot be decoded.
    """
    return part.squares(positions, data.form._replace(side=side or data.info.image_size), data.info.path)


def in_memory(
    data: DataSet, *, train: int, validation: int, classes: Integers | None = None, side: int | None = None
) -> DataSet:
    """Return a small copy to learn from:
    at most so many images of each part, of some classes, at most `side` px.

    Classes keep their proportions, with an image of each or more where there are no more classes than images,
    and get new labels; means and deviations stay those of the whole set.
    """
    chosen = classes if classes is not None else np.arange(len(data.info.classes))
    side = min(side or data.info.image_size, data.info.image_size)
    trained = _part(data, data.train, chosen, train, side)
    validated = _part(data, data.validation, chosen, validation, side)
    counts = np.bincount(trained.labels, minlength=len(chosen))
    info = replace(
        data.info,
        classes=tuple(data.info.classes[each] for each in chosen),
        class_counts=tuple(counts.tolist()) if counts.all() else (),  # of more classes than images
        image_size=side,
        train_images=len(trained),
        validation_images=len(validated),
        test_images=0,
        in_memory=True,
    )
    return DataSet(info, trained, validated, None, data.resize)


def largest_classes(data: DataSet, most: int) -> Integers:
    """Return the classes with most training images among those that validation has too, in order."""
    count = len(data.info.classes)
    trained = np.bincount(data.train.labels, minlength=count)
    trained[np.bincount(data.validation.labels, minlength=count) == 0] = 0
    largest = np.argsort(-trained, kind="stable")[:most]
    return np.sort(largest[trained[largest] > 0])


def _part(data: DataSet, part: Part, classes: Integers, most: int, side: int) -> ArrayPart:
    members = np.flatnonzero(np.isin(part.labels, classes))
    positions = members[some_of_each_class(part.labels[members], most)]
    labels = np.searchsorted(classes, part.labels[positions])
    return ArrayPart(pixels(data, part, positions, side), labels.astype(np.int64))
