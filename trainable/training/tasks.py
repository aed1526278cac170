"""Makes the task of a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from trainable.data import DataInfo
from trainable.data.arrays import as_tensor
from trainable.data.loading import statistics_of
from trainable.recipe import Recipe
from trainable.recipe.metrics import BoundaryF1
from trainable.recipe.tasks import Classification, Segmentation
from trainable.recipe.training import Regularisation, Sampling
from trainable.training.classification import ClassificationTask
from trainable.training.extra_metrics import ExtraMetrics
from trainable.training.imbalance import adjustments, class_weights
from trainable.training.segmentation import SegmentationTask
from trainable.training.task import Task


def task_of(recipe: Recipe, info: DataInfo, device: torch.device, extra: ExtraMetrics | None = None) -> Task:
    """Return what a recipe learns from the images that `info` describes, with the metrics that it measures.

    Where the classes do not count alike, their weights and adjustments [classes] are on the device. A
    segmentation counts the pixels of a class, and those of an image whatever its sampling is.
    """
    spec, classes = recipe.regularisation, len(info.classes)
    match recipe.task:
        case Classification():
            found = _of_classes(spec, info.class_counts, recipe.loop.sampling, device)
            return ClassificationTask(classes, spec.label_smoothing, *found)
        case Segmentation():
            weights, adjusted = _of_classes(spec, info.pixel_counts, "natural", device)
            metrics = extra.specs if extra is not None else ()
            mean, std = (torch.tensor(each).to(device) for each in statistics_of(recipe.data, info))
            return SegmentationTask(
                recipe.task,
                classes,
                info.image_size,
                label_smoothing=spec.label_smoothing,
                weights=weights,
                adjustments=adjusted,
                tolerance=next((each.tolerance for each in metrics if isinstance(each, BoundaryF1)), None),
                own=extra.own if extra is not None else None,
                black=-mean / std,
            )
        case _:
            assert_never(recipe.task)


def _of_classes(
    spec: Regularisation, counts: Sequence[int], sampling: Sampling, device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    """Return the weights of the classes in the loss, and what is added to their logits."""
    held = np.array(counts)
    found = class_weights(spec.class_weights, held, sampling), adjustments(spec, held, sampling)
    weights, adjusted = (None if each is None else as_tensor(each).to(device) for each in found)
    return weights, adjusted
