"""Computes areas under curves, and points on them, for many resamples of the same images at once.

A resample is given by how often it has each image: counts [images, resamples]. Images are counted between the
scores of the class itself alone, where the curve turns; these steps are the same for all resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csc_array

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Ranked:
    """Holds what the curves of one class need, for each of its images (rows) and each resample (columns)."""

    own: Array
    """How often the image is there."""
    below: Array
    """How many images have a lower score."""
    up_to: Array
    """How many images have a lower score or the same."""
    own_below: Array
    """How many images of the class have a lower score."""
    total: Array
    """The number of images, [resamples]."""

    @property
    def positives(self) -> Array:
        found: Array = self.own.sum(0)
        return found


def ranked(scores: Array, positive: Array, counts: Array) -> Ranked:
    """Return the images of a class in order, by scores [images]; `positive` [images] says which they are."""
    levels, level = np.unique(scores[positive], return_inverse=True)
    steps = np.searchsorted(levels, scores, "left") + np.searchsorted(levels, scores, "right")
    own = counts[positive].astype(float)
    running = np.cumsum(
        sums_by_group(steps, np.ones(len(scores), dtype=bool), 2 * len(levels) + 1, counts), axis=0
    )
    own_running = np.cumsum(
        sums_by_group(level + 1, np.ones(len(own), dtype=bool), len(levels) + 1, own), axis=0
    )
    return Ranked(own, running[2 * level], running[2 * level + 1], own_running[level], running[-1])


def counted(group: Array, groups: int, counts: Array) -> Array:
    """Return the number of images of each group, [groups, resamples]."""
    return sums_by_group(group, np.ones(len(group), dtype=bool), groups, counts)


def sums_by_group(group: Array, values: Array, groups: int, counts: Array) -> Array:
    """Return the sums of values [images] over the images of each group, [groups, resamples]."""
    exact = values if values.dtype.kind == "f" else values.astype(counts.dtype)
    cells = exact, (group, np.arange(len(group)))
    found: Array = csc_array(cells, shape=(groups, len(group))) @ counts
    return found.astype(float)


def auroc(images: Ranked) -> tuple[Array, Array]:
    """Return the area under the ROC curve by resample, and where there is one.

    It is the Mann-Whitney U of images of the class against others. Pairs within the class count half of the
    square of their number, ties included.
    """
    positives = images.positives
    pairs = positives * (images.total - positives)
    wins = (images.own * (images.below + images.up_to)).sum(0) / 2 - positives**2 / 2
    return _quotient(wins, pairs), pairs > 0


def average_precision(images: Ranked) -> tuple[Array, Array]:
    """Return the average precision by resample, and where the class has an image."""
    recalled = images.positives - images.own_below
    precision = _quotient(recalled, images.total - images.below)
    return _quotient((images.own * precision).sum(0), images.positives), images.positives > 0


def recall_at(images: Ranked, precision: float) -> tuple[Array, Array]:
    """Return the highest recall at a precision by resample, and where the class has an image.

    Only thresholds at scores of the class can be the best: between them precision falls and recall stays.
    """
    recalled = images.positives - images.own_below
    precise = _quotient(recalled, images.total - images.below) >= precision
    best = np.where(precise, recalled, 0.0).max(0)
    return _quotient(best, images.positives), images.positives > 0


def _quotient(above: Array, below: Array) -> Array:
    """Return above / below, and 0 where below is 0."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
