"""Says how sure the scores of a part are, of labels and of masks, by resampling its images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainable.training.bootstrap import (
    RESAMPLES,
    Intervals,
    bounds_of,
    counts_of_images,
    images_behind,
    intervals_of,
    resampled_metrics,
)
from trainable.training.evaluate import ByImage, Scores
from trainable.training.extra_metrics import ExtraMetrics

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Resampled:
    """Holds the scores of resamples, [resamples] by name; of masks also those of all classes, [K, resamples]
    by name, which are nan where a resample has no such class."""

    metrics: Mapping[str, Array]
    count: int  # of the part's images
    of_classes: Array  # how many of them have each class, [K]
    by_class: Mapping[str, Array] = field(default_factory=dict)

    @property
    def images(self) -> dict[str, int]:
        """Of how many images each score is that is a share."""
        return images_behind(self.metrics, self.count, self.of_classes)

    def intervals(self) -> Intervals:
        """Return between which values each score lies."""
        found = intervals_of(self.metrics, self.images)
        by_class = {
            name: tuple(map(_bounds_where_known, each, self.of_classes.tolist()))
            for name, each in self.by_class.items()
        }
        return Intervals(found.bounds, found.resamples, by_class)


def resampled_scores(
    scores: Scores, extra: ExtraMetrics, seed: int, resamples: int = RESAMPLES
) -> Resampled | None:
    """Return the scores of a part on resamples of its images; None where the answers are not known, as those
    of a model that is lost."""
    if scores.by_image is not None:
        return _of_sums(scores.by_image, seed, resamples)
    if scores.answers is not None:
        of_classes = np.bincount(scores.answers.labels.numpy(), minlength=scores.answers.classes)
        return Resampled(resampled_metrics(scores.answers, extra, seed, resamples), scores.images, of_classes)
    return None


def _of_sums(images: ByImage, seed: int, resamples: int) -> Resampled:
    chunks = counts_of_images(np.random.default_rng(seed), len(images), resamples)
    parts = [images.resampled(counts) for counts in chunks]
    return Resampled(
        {name: np.concatenate([part.metrics[name] for part in parts]) for name in parts[0].metrics},
        len(images),
        images.of_classes,
        {name: np.concatenate([part.by_class[name] for part in parts], 1) for name in parts[0].by_class},
    )


def _bounds_where_known(values: Array, images: int) -> tuple[float, float] | None:
    known = values[~np.isnan(values)]
    return bounds_of(known, images) if len(known) else None
