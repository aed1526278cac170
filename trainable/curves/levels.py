"""Says how good a run became on its training images, and on validation images epoch by epoch.

For labels of images that is their accuracy. The pixel accuracy of masks is mostly that of the largest
class: where nine pixels in ten are background, it is 0.9 for a network that finds nothing. So masks are read
by their mean IoU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainable.recipe import Recipe
from trainable.recipe.tasks import Segmentation
from trainable.training.metrics import CLEAN_IOU, EpochResult

IOU = "val_mean_iou"


@dataclass(frozen=True)
class Levels:
    """Holds scores in [0, 1] of validation, one an epoch, and of training images at the end."""

    validation: tuple[float, ...]
    train: float
    is_clean: bool
    """This says whether training images were scored as validation images are."""
    dense: bool
    figures: dict[str, float]
    """These are the scores of the last epoch by their names."""

    @property
    def gap(self) -> float:
        return self.train - self.validation[-1]

    @property
    def train_in_words(self) -> str:
        """How good training images are, in words that begin a sentence or follow "only"."""
        if self.dense:
            return f"a mean IoU of {self.train:.1%} on training images"
        return f"{self.train:.1%} of the training images are right"

    @property
    def left_in_words(self) -> str:
        """What is left to learn of the training images."""
        if self.dense:
            return f"the mean IoU on training images is {self.train:.1%}"
        return f"{1 - self.train:.1%} of the training images are still wrong"

    @property
    def not_clean(self) -> str:
        """What is less sure where training images were not scored as validation images are."""
        if self.dense:
            return (
                f"{CLEAN_IOU} was not measured: the gap is that of pixel accuracies, on augmented images, "
                "which is too small"
            )
        return (
            "clean_train_accuracy was not measured: train_accuracy stands in, on augmented images, whose gap "
            "to validation is too small"
        )


def levels_of(history: Sequence[EpochResult], recipe: Recipe) -> Levels:
    """Return the levels of a run that did not end diverged: of masks, if every epoch has their mean IoU."""
    ious = [result.extra_metrics.get(IOU) for result in history]
    known = tuple(iou for iou in ious if iou is not None)
    dense = isinstance(recipe.task, Segmentation) and len(known) == len(history)
    return _of_masks(history[-1], known) if dense else _of_labels(history)


def _of_labels(history: Sequence[EpochResult]) -> Levels:
    last = history[-1]
    clean = last.clean_train_accuracy
    train = last.train_accuracy if clean is None else clean
    name = "train_accuracy" if clean is None else "clean_train_accuracy"
    figures = {name: train, "val_accuracy": last.val_accuracy}
    return Levels(tuple(result.val_accuracy for result in history), train, clean is not None, False, figures)


def _of_masks(last: EpochResult, ious: tuple[float, ...]) -> Levels:
    """Return the levels of masks: where the mean IoU of training images was not measured, it is that of
    validation, and the gap of the pixel accuracies beside it."""
    clean = last.extra_metrics.get(CLEAN_IOU)
    beside = last.train_accuracy - last.val_accuracy
    train = min(1.0, max(0.0, ious[-1] + beside)) if clean is None else clean
    named = {"train_accuracy": last.train_accuracy} if clean is None else {CLEAN_IOU: clean}
    figures = {**named, IOU: ious[-1], "val_accuracy": last.val_accuracy}
    return Levels(ious, train, clean is not None, True, figures)


def loss_of_guessing(recipe: Recipe, classes: int) -> float:
    """Return at most what a network's loss is that gives every class the same probability: whether there is
    a second head, whose loss a recipe adds, and how sure a teacher is, are not known here. A teacher is
    rarely so sure, so with one a loss above this is a late sign. Of features it is the loss of zeros.
    """
    of_label = math.log(max(classes, 2))
    whole = of_label
    if isinstance(recipe.task, Segmentation):
        loss = recipe.task.loss
        whole = (loss.cross_entropy + loss.focal) * of_label + loss.dice + loss.lovasz
        whole *= 1.0 + loss.auxiliary
    if (taught := recipe.distillation) is None:
        return whole
    return (1.0 - taught.weight) * whole + taught.weight * taught.guessing(of_label)
