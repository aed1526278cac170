"""Which images a lesson has not seen: neither their series, nor a near-copy of them, was taught.

What a net says of mirror images, of a patient or a film that it knows by heart, is no answer about others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainable.array_types import Integers
from trainable.checks.near_duplicates import SAME, descriptors, most_similar
from trainable.data import DataSet, Split

MOSTLY = (
    0.5  # where training has the series of more validation images than this, half of the series are taught
)


def has_shared_series(data: DataSet) -> bool:
    """Say whether training and validation seem to have images of one series."""
    series = data.in_series.shared if data.in_series is not None else ()
    shared = data.shared if data.grouped else series
    return any({each.first, each.second} == {"train", "validation"} for each in shared)


def _series(data: DataSet) -> tuple[Integers, Integers]:
    """Return the series, or the group, of each training and of each validation image, as numbers."""
    series = data.in_series.groups if data.in_series is not None else {}
    groups = data.groups if data.groups is not None else series
    return groups["train"], groups["validation"]


def taught_images(data: DataSet) -> Integers:
    """Return the positions of the training images that may be taught, so that enough validation images stay
    unseen: all, or where most validation images are of a series that training has, every second series."""
    everything = np.arange(len(data.train))
    if not has_shared_series(data):
        return everything
    train, validation = _series(data)
    if np.isin(validation, train).mean() <= MOSTLY:
        return everything
    return np.flatnonzero(np.isin(train, np.unique(train)[::2]))


def unseen_images(data: DataSet, taught: Integers, scored: Integers, sample: DataSet) -> NDArray[np.bool_]:
    """Return which of the validation images at `scored` are new after the training images at `taught`, [n].

    `sample` has just these images, small and in this order. Without groups or names of series near-copies
    alone can be seen.
    """
    new = np.isin(sample.validation.labels, sample.train.labels)  # of a class that was taught
    if has_shared_series(data):
        train, validation = _series(data)
        new &= ~np.isin(validation[scored], train[taught])
    whole: dict[Split, Integers] = {"train": np.arange(len(taught)), "validation": np.arange(len(scored))}
    known = descriptors(sample, whole)
    return new & (most_similar(known["validation"], known["train"]).numpy() < SAME)
