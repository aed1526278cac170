"""Holds what a model answers for every image of a part, for metrics that no sum over images gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from trainable.augmentation.change import moved
from trainable.ranks import Ranks


@dataclass(frozen=True)
class Rows:
    """Says which images of a part this process scores: their rows, int64 on the device, of `images` rows."""

    mine: Tensor
    images: int

    @classmethod
    def of(cls, ranks: Ranks, order: Tensor, batch: int, device: torch.device) -> Self:
        """Returns a rank's rows, if these rows are scored in this order, int64 [n], in batches of this
        size."""
        return cls(moved(ranks.batches_of(order, batch), device), len(order))


@dataclass(frozen=True)
class Answers:
    """Holds logits [N, classes], float64, and labels [N], int64, in the order of the part, on the host."""

    logits: Tensor
    labels: Tensor

    @classmethod
    def of_table(cls, table: Tensor) -> Self:
        """Returns the answers in a table [N, classes + 1], whose last column holds the labels."""
        return cls(table[:, :-1], table[:, -1].to(torch.int64))

    def of(self, images: np.ndarray[Any, Any]) -> Self:
        """Returns the answers to some of the images, by their positions; an image may be there twice."""
        chosen = torch.from_numpy(images)
        return type(self)(self.logits[chosen], self.labels[chosen])

    @cached_property
    def probabilities(self) -> Tensor:
        """Returns the probabilities [N, classes].

        In float64 a probability of nearly 1 stays below 1: in float32 those of sure answers would be ties.
        """
        return self.logits.softmax(1)

    @cached_property
    def predicted(self) -> Tensor:
        """Returns the likeliest class of each image, [N]; of equals the first."""
        return self.logits.argmax(1)
