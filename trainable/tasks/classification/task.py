"""Learns one label an image."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from trainable.augmentation.mixing import make_mixing
from trainable.recipe import augmentations as specs
from trainable.training.answers import RankRows
from trainable.training.evaluate import LabelTally, Outputs, Scores, main_output, worst_scores
from trainable.training.task import BatchMixing, BatchWeight, Compared, Comparison, Task


@final
class ClassificationTask(Task):
    """One label an image, learnt by cross-entropy of logits [B, classes] with labels [B] or [B, classes]
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

    def loss(self, outputs: Outputs, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy, weighted as torch's own is with whole labels.

        With mixed labels torch divides by the number of images, and here it is the weight of the labels: so
        mixing does not change how much a batch counts.
        """
        logits = main_output(outputs)
        if self._adjustments is not None:
            logits = logits + self._adjustments.to(logits.dtype)
        weights = None if self._weights is None else self._weights.to(logits.dtype)
        if targets.is_floating_point():
            targets = targets.to(logits.dtype)
        loss = functional.cross_entropy(logits, targets, weights, label_smoothing=self._smoothing)
        if weights is None or not targets.is_floating_point():
            return loss
        return loss * (len(targets) / (targets @ weights).sum())

    def weight(self, targets: Tensor) -> BatchWeight:
        """Return the sum of the weights of the images' classes, which mixing within the batch does not
        change."""
        weights = self.weights(targets)
        return float(len(targets)) if weights is None else weights.sum()

    def weights(self, targets: Tensor) -> Tensor | None:
        return None if self._weights is None else self._weights[targets]

    def comparison(self) -> Comparison:
        return compared_labels

    def right(self, output: Tensor, targets: Tensor) -> Tensor:
        """Return 0 or 1 for each answer, or the share of the answered class if labels are mixed."""
        predicted = output.argmax(1)
        return predicted == targets if targets.ndim == 1 else targets.gather(1, predicted[:, None])

    def mixing(self, spec: specs.Mixing) -> BatchMixing | None:
        assert isinstance(spec, specs.MixingOfLabels)  # the recipe has refused others
        mixed = make_mixing(spec)
        if mixed is None:
            return None
        return lambda images, labels, generator: mixed(images, labels, self.classes, generator)

    def tally(
        self, device: torch.device, confusion: bool = False, rows: RankRows | None = None
    ) -> LabelTally:
        return LabelTally(self.classes, device, confusion, rows)

    def worst(self, images: int = 0) -> Scores:
        return worst_scores(self.classes, images)


def compared_labels(output: Tensor, targets: Tensor, answers: Tensor) -> Compared:
    """Return the logits of both networks; the true class of a mixed image is the one with the largest
    share."""
    truth = targets.argmax(1) if targets.is_floating_point() else targets
    return Compared(output, answers.to(output.dtype), truth)
