"""How a model scores on each image of a part with masks, and on resamples of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, final

import numpy as np
import torch
from torch import Tensor

from trainable.recipe.tasks import IGNORED
from trainable.training.evaluate import Array, ByImage, Resamples

MEANS = {"iou": "mean_iou", "dice": "mean_dice", "boundary_f1": "boundary_f1"}


@final
@dataclass(frozen=True)
class MaskAnswers(ByImage):
    """What each image of a part adds to its scores, in the order of the part: float64, on the host.

    IoU, Dice, accuracy and recall all follow from three counts of pixels for each class: so an image takes 24
    bytes a class, and not 8 for each pair of classes.
    """

    losses: Array  # the cross-entropy of each image, [N]
    true: Array  # how many counted pixels of an image are of each class, [N, K]
    predicted: Array  # how many are predicted to be of each class, [N, K]
    right: Array  # how many are of each class, and predicted to be, [N, K]
    # The boundary F1 score of each class, and whether the image or its answer has it: [N, 2, K] if it was
    # measured
    boundaries: Array | None
    own: dict[str, Array]  # what each function of the caller's made of each image, [N] by name

    def __len__(self) -> int:
        return len(self.losses)

    def ious(self) -> Array:
        """Return the IoU of each class in each image, [N, K]; nan where neither mask has the class."""
        unions = self.true + self.predicted - self.right
        return shares(self.right, unions)

    def mean_ious(self) -> Array:
        """Return the mean IoU of each image [N], over the classes that its mask or its answer has; 1 for an
        image of which no pixel counts."""
        ious = self.ious()
        there = ~np.isnan(ious)
        sums = np.where(there, ious, 0.0).sum(1)
        means: Array = np.divide(sums, there.sum(1), out=np.ones(len(self)), where=there.any(1))
        return means

    @property
    def of_classes(self) -> Array:
        shown: Array = ((self.true > 0) | (self.predicted > 0)).sum(axis=0)
        return shown

    def resampled(self, counts: Array) -> Resamples:
        """Return the scores of resamples, of how often each image is in each, [images, resamples].

        Means are over the classes that a resample or its answers have, as `MaskTally` takes them; a resample
        of which no pixel counts scores 0. Whole images are drawn, not pixels: pixels of one are alike.
        """
        times = counts.astype(np.float64)  # pixels are too many for float32
        true, predicted, right = (each.T @ times for each in (self.true, self.predicted, self.right))
        by_class = {
            "iou": shares(right, true + predicted - right),
            "dice": shares(2 * right, true + predicted),
        }
        if self.boundaries is not None:
            scores, shown = self.boundaries.transpose(1, 2, 0) @ times
            by_class["boundary_f1"] = shares(scores, shown)
        images_drawn = times.sum(0)
        metrics = {
            "loss": self.losses @ times / images_drawn,
            "accuracy": np.nan_to_num(shares(right.sum(0), true.sum(0))),
            "balanced_accuracy": _mean(shares(right, true)),
            **{MEANS[name]: _mean(values) for name, values in by_class.items()},
            **{name: values @ times / images_drawn for name, values in self.own.items()},
        }
        return Resamples(metrics, by_class)

    @classmethod
    def of_table(cls, table: Array, classes: int, own: Sequence[str], *, boundaries: bool) -> Self:
        """Return the answers in a table [N, columns], whose rows are those of `rows_of`."""
        widths = [1, classes, classes, classes, 2 * classes if boundaries else 0, len(own)]
        losses, true, predicted, right, edges, values = np.split(table, np.cumsum(widths)[:-1], axis=1)
        return cls(
            losses[:, 0],
            true,
            predicted,
            right,
            edges.reshape(len(table), 2, classes) if boundaries else None,
            dict(zip(own, values.T, strict=True)),
        )


def columns_of(classes: int, own: int, *, boundaries: bool) -> int:
    """Return how many columns a table of answers has."""
    return 1 + (5 if boundaries else 3) * classes + own


def rows_of(
    losses: Tensor, predicted: Tensor, masks: Tensor, classes: int, others: Sequence[Tensor]
) -> Tensor:
    """Return the rows of a table for a batch, float64 [B, columns], on the device.

    They hold the losses [B], counts of the pixels of predicted and true masks [B, H, W], and `others`, each
    [B, ...].
    """
    counted = masks != IGNORED
    right = masks.masked_fill(predicted != masks, IGNORED)
    counts = (pixels_of(each, classes) for each in (masks, predicted.masked_fill(~counted, IGNORED), right))
    return torch.cat([losses[:, None].double(), *counts, *(each.flatten(1).double() for each in others)], 1)


def shares(parts: Array, wholes: Array) -> Array:
    """Return parts / wholes, and nan where there is no whole."""
    found: Array = np.divide(parts, wholes, out=np.full(parts.shape, np.nan), where=wholes > 0)
    return found


def _mean(values: Array) -> Array:
    """Return the mean over classes of values [K, resamples], without those that are nan; 0 of none."""
    there = ~np.isnan(values)
    found: Array = np.where(there, values, 0.0).sum(0) / there.sum(0).clip(min=1)
    return found


def pixels_of(masks: Tensor, classes: int) -> Tensor:
    """Return the number of pixels of each class, float64 [B, classes]."""
    labels = masks.flatten(1).to(torch.int64)
    labels = labels.masked_fill(labels == IGNORED, classes)  # a cell of their own, which is dropped
    counts = torch.zeros(len(masks), classes + 1, dtype=torch.float64, device=masks.device)
    return counts.scatter_add_(1, labels, torch.ones_like(labels, dtype=torch.float64))[:, :classes]
