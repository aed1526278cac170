"""Holds how a model scores on each image of a part with masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from trainable.recipe.tasks import IGNORED
from trainable.training.boundaries import pixels_of

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class MaskAnswers:
    """Holds what each image of a part adds to its scores, in the order of the part: float64, on the host.

    IoU, Dice, accuracy and recall all follow from three counts of pixels for each class: so an image takes 24
    bytes a class, and not 8 for each pair of classes.
    """

    losses: Array
    """The cross-entropy of each image, [N]."""
    true: Array
    """How many counted pixels of an image are of each class, [N, K]."""
    predicted: Array
    """How many are predicted to be of each class, [N, K]."""
    right: Array
    """How many are of each class, and predicted to be, [N, K]."""
    boundaries: Array | None
    """The boundary F1 score of each class, and whether the image or its answer has it: [N, 2, K] if it was
    measured."""
    own: dict[str, Array]
    """What each function of the caller's made of each image, [N] by name."""

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

    @classmethod
    def of_table(cls, table: Array, classes: int, own: Sequence[str], *, boundaries: bool) -> Self:
        """Return the answers in a table [N, columns], whose rows are those of `row_of`."""
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
