"""Resamples the images of a part with masks, to say how sure its scores are (Efron, 1979).

Whole images are drawn, not pixels: pixels of one image are alike. Every score follows from sums over images,
so that all resamples are a few matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trainable.training.mask_answers import MaskAnswers, shares
from trainable.training.mask_scores import MEANS

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class ResampledMasks:
    """Holds the scores of resamples: [resamples] by name, and of all classes [K, resamples] by name, which
    are nan where a resample has no such class."""

    metrics: dict[str, Array]
    by_class: dict[str, Array]


def resampled_masks(images: MaskAnswers, counts: Array) -> ResampledMasks:
    """Return the scores of resamples, of how often each image is in each, [images, resamples].

    Means are over the classes that a resample or its answers have, as `MaskTally` takes them; a resample of
    which no pixel counts scores 0.
    """
    times = counts.astype(np.float64)  # pixels are too many for float32
    true, predicted, right = (each.T @ times for each in (images.true, images.predicted, images.right))
    by_class = {
        "iou": shares(right, true + predicted - right),
        "dice": shares(2 * right, true + predicted),
    }
    if images.boundaries is not None:
        scores, there = images.boundaries.transpose(1, 2, 0) @ times
        by_class["boundary_f1"] = shares(scores, there)
    images_drawn = times.sum(0)
    metrics = {
        "loss": images.losses @ times / images_drawn,
        "accuracy": np.nan_to_num(shares(right.sum(0), true.sum(0))),
        "balanced_accuracy": _mean(shares(right, true)),
        **{MEANS[name]: _mean(values) for name, values in by_class.items()},
        **{name: values @ times / images_drawn for name, values in images.own.items()},
    }
    return ResampledMasks(metrics, by_class)


def _mean(values: Array) -> Array:
    """Return the mean over classes of values [K, resamples], without those that are nan; 0 of none."""
    there = ~np.isnan(values)
    found: Array = np.where(there, values, 0.0).sum(0) / there.sum(0).clip(min=1)
    return found
