"""Defines what a run learns: how outputs are compared with targets, in training and in scoring.

Other tasks can be added here: the trainer and the evaluation know a Task, not what its outputs mean. A task
whose targets are images (segmentation) has its own `loss`, `right` and tally here, and its transforms change
image and target alike.
"""

from __future__ import annotations

import abc
import math
from typing import assert_never, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from trainable.data import DataInfo
from trainable.data.arrays import as_tensor
from trainable.recipe import Recipe
from trainable.recipe import data as specs
from trainable.training.answers import Rows
from trainable.training.evaluate import Scores, Tally, worst_scores
from trainable.training.imbalance import adjustments, class_weights

Weight = float | Tensor
"""A weight is a number of images, or a number without dimensions on the device."""


def task_of(recipe: Recipe, info: DataInfo, device: torch.device) -> Task:
    """Returns what a recipe learns from the images that `info` describes."""
    spec, held, sampling = recipe.regularisation, np.array(info.class_counts), recipe.loop.sampling
    weights = class_weights(spec.class_weights, held, sampling)
    adjusted = adjustments(spec, held, sampling)
    return make_task(
        recipe.task,
        len(info.classes),
        spec.label_smoothing,
        weights=None if weights is None else as_tensor(weights).to(device),
        adjustments=None if adjusted is None else as_tensor(adjusted).to(device),
    )


def make_task(
    spec: specs.Classification,
    classes: int,
    label_smoothing: float,
    *,
    weights: Tensor | None = None,
    adjustments: Tensor | None = None,
) -> Task:
    """Returns the task of a recipe, over so many classes.

    If the classes do not count alike, `weights` [classes] are those of their images, and `adjustments`
    [classes] are added to the logits in training; both are on the run's device.
    """
    match spec:
        case specs.Classification():
            return ClassificationTask(classes, label_smoothing, weights, adjustments)
        case _:
            assert_never(spec)


class Task(abc.ABC):
    """Defines what one kind of learning provides to the training loop."""

    classes: int
    weighted: bool = False
    """This says whether some images count more than others in the loss."""

    @property
    @abc.abstractmethod
    def guessing(self) -> float:
        """Returns the loss of a model that knows nothing."""

    @abc.abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean loss of a batch, on the device; a weighted mean if the task is weighted."""

    def weight(self, labels: Tensor) -> Weight:
        """Returns how much a batch with these labels, not mixed, counts in a mean over several batches."""
        return float(len(labels))

    @abc.abstractmethod
    def right(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns how right each answer of a batch is, [B], in [0, 1]; on the device."""

    @abc.abstractmethod
    def tally(self, device: torch.device, confusion: bool = False, rows: Rows | None = None) -> Tally:
        """Returns an empty tally of scores; with `rows` it keeps the answer to each image."""

    @abc.abstractmethod
    def worst(self, images: int = 0) -> Scores:
        """Returns the finite scores that stand for a model which is lost."""


@final
class ClassificationTask(Task):
    """Learns one label an image, by cross-entropy of logits [B, classes] with labels [B] or [B, classes]
    (soft)."""

    def __init__(
        self,
        classes: int,
        label_smoothing: float = 0.0,
        weights: Tensor | None = None,
        adjustments: Tensor | None = None,
    ) -> None:
        self.classes = classes
        self.weighted = weights is not None
        self._smoothing, self._weights, self._adjustments = label_smoothing, weights, adjustments

    @property
    def guessing(self) -> float:
        return math.log(max(self.classes, 2))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean cross-entropy, weighted as torch's own is with whole labels.

        With mixed labels torch divides by the number of images, and here it is the weight of the labels: so
        mixing does not change how much a batch counts.
        """
        if self._adjustments is not None:
            outputs = outputs + self._adjustments.to(outputs.dtype)
        weights = None if self._weights is None else self._weights.to(outputs.dtype)
        if targets.is_floating_point():
            targets = targets.to(outputs.dtype)
        loss = functional.cross_entropy(outputs, targets, weights, label_smoothing=self._smoothing)
        if weights is None or not targets.is_floating_point():
            return loss
        return loss * (len(targets) / (targets @ weights).sum())

    def weight(self, labels: Tensor) -> Weight:
        """Returns the sum of the weights of the images' classes, which mixing within the batch does not
        change."""
        return float(len(labels)) if self._weights is None else self._weights[labels].sum()

    def right(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns 0 or 1 for each answer, or the share of the answered class if labels are mixed."""
        predicted = outputs.argmax(1)
        return predicted == targets if targets.ndim == 1 else targets.gather(1, predicted[:, None])

    def tally(self, device: torch.device, confusion: bool = False, rows: Rows | None = None) -> Tally:
        return Tally(self.classes, device, confusion, rows)

    def worst(self, images: int = 0) -> Scores:
        return worst_scores(self.classes, images)
