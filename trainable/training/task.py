"""Defines what a run learns: how outputs are compared with targets, in training and in scoring.

Other tasks can be added here: the trainer and the evaluation know a Task, not what its outputs mean. A task
whose targets are images (segmentation) has its own `loss`, `right` and tally here, and its transforms change
image and target alike.
"""

from __future__ import annotations

import abc
import math
from typing import assert_never, final

import torch
from torch import Tensor
from torch.nn import functional

from trainable.recipe import data as specs
from trainable.training.evaluate import Scores, Tally, worst_scores


def make_task(spec: specs.Classification, classes: int, label_smoothing: float) -> Task:
    """Returns the task of a recipe, over so many classes."""
    match spec:
        case specs.Classification():
            return ClassificationTask(classes, label_smoothing)
        case _:
            assert_never(spec)


class Task(abc.ABC):
    """Defines what one kind of learning provides to the training loop."""

    classes: int

    @property
    @abc.abstractmethod
    def guessing(self) -> float:
        """Returns the loss of a model that knows nothing."""

    @abc.abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean loss of a batch, on the device."""

    @abc.abstractmethod
    def right(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns how right each answer of a batch is, [B], in [0, 1]; on the device."""

    @abc.abstractmethod
    def tally(self, device: torch.device, confusion: bool = False) -> Tally:
        """Returns an empty tally of scores."""

    @abc.abstractmethod
    def worst(self, images: int = 0) -> Scores:
        """Returns the finite scores that stand for a model which is lost."""


@final
class ClassificationTask(Task):
    """Learns one label an image, by cross-entropy of logits [B, classes] with labels [B] or [B, classes]
    (soft)."""

    def __init__(self, classes: int, label_smoothing: float = 0.0) -> None:
        self.classes = classes
        self._smoothing = label_smoothing

    @property
    def guessing(self) -> float:
        return math.log(max(self.classes, 2))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if targets.is_floating_point():
            targets = targets.to(outputs.dtype)
        return functional.cross_entropy(outputs, targets, label_smoothing=self._smoothing)

    def right(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns 0 or 1 for each answer, or the share of the answered class if labels are mixed."""
        predicted = outputs.argmax(1)
        return predicted == targets if targets.ndim == 1 else targets.gather(1, predicted[:, None])

    def tally(self, device: torch.device, confusion: bool = False) -> Tally:
        return Tally(self.classes, device, confusion)

    def worst(self, images: int = 0) -> Scores:
        return worst_scores(self.classes, images)
