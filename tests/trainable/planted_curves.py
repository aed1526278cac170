"""Makes learning curves whose meaning is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.epoch_results import epoch_result
from trainable.curves.remedies import RunVerdict
from trainable.diagnosis import Diagnosis, diagnose
from trainable.recipe import Recipe
from trainable.training.metrics import EpochResult

CLASSES = 10
MANY = 10_000  # it counts validation images: a standard error is half a point and less


def curve(val: Sequence[float], train: float | None, **last: Any) -> list[EpochResult]:
    """Return a cosine run with these validation accuracies; its net knows `train` of its training images."""
    epochs = len(val)
    history = [
        epoch_result(number, value, applied_lr=0.05 * (1.0 + math.cos(math.pi * number / epochs)))
        for number, value in enumerate(val, start=1)
    ]
    history[-1] = replace(history[-1], clean_train_accuracy=train, **last)
    return history


def settling(end: float, epochs: int = 20) -> list[float]:
    """Return a curve that no longer rises in its last quarter."""
    return [end - 0.3 * max(0.0, 1.0 - number / (0.7 * epochs)) ** 2 for number in range(1, epochs + 1)]


def verdict(
    history: Sequence[EpochResult], images: int | None = MANY, recipe: Recipe | None = None
) -> RunVerdict:
    return diagnosed(history, images, recipe).verdict


def diagnosed(
    history: Sequence[EpochResult], images: int | None = MANY, recipe: Recipe | None = None
) -> Diagnosis:
    return diagnose(history, recipe or Recipe(), classes=CLASSES, train_images=MANY, validation_images=images)
