"""What a model answers for every image of a part, for metrics that no sum over images gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from trainable.augmentation.draws import moved
from trainable.ranks import Ranks

TOP = 5
COLUMNS = 5  # what is kept of each image, however many classes there are: see `columns_of`


@dataclass(frozen=True)
class RankRows:
    """Which images of a part this process scores: their rows, int64 on the device, of `images` rows."""

    mine: Tensor
    images: int
    logits: bool = False  # the logits of all classes are kept, too

    @classmethod
    def of(cls, ranks: Ranks, order: Tensor, batch: int, device: torch.device, *, logits: bool) -> Self:
        """Return a rank's rows, if these rows are scored in this order, int64 [n], in batches of this
        size."""
        return cls(moved(ranks.batches_of(order, batch), device), len(order), logits)


@dataclass(frozen=True)
class Answers:
    """What a model answers for each of N images, in the order of the part, on the host."""

    classes: int  # how many there are
    labels: Tensor  # int64 [N]
    predicted: Tensor  # int64 [N], the likeliest class; of equals the first
    losses: Tensor  # float64 [N], the true class's probability p as -ln p
    sureness: Tensor  # float64 [N], the predicted class's probability
    in_top: Tensor  # bool [N], the true class is among the TOP likeliest
    logits: Tensor | None = None  # float64 [N, classes], where a metric needs every class's probability

    @classmethod
    def of_table(cls, table: Tensor, classes: int) -> Self:
        """Read the answers from a table [N, COLUMNS], or [N, COLUMNS + classes] where it has the logits."""
        labels, predicted, losses, sureness, in_top = table[:, :COLUMNS].T
        logits = table[:, COLUMNS:] if table.shape[1] > COLUMNS else None
        return cls(classes, labels.long(), predicted.long(), losses, sureness, in_top.bool(), logits)

    @classmethod
    def of_logits(cls, logits: Tensor, labels: Tensor) -> Self:
        """Keep all of logits [N, classes] and labels [N]."""
        return cls.of_table(torch.cat([columns_of(logits, labels), logits.double()], 1), logits.shape[1])

    def of(self, images: np.ndarray[Any, Any]) -> Self:
        """Return the answers to some of the images, by their positions; an image may be there twice."""
        chosen = torch.from_numpy(images)
        return type(self)(
            self.classes,
            self.labels[chosen],
            self.predicted[chosen],
            self.losses[chosen],
            self.sureness[chosen],
            self.in_top[chosen],
            None if self.logits is None else self.logits[chosen],
        )

    @cached_property
    def probabilities(self) -> Tensor:
        """The probabilities [N, classes], where the logits are kept.

        In float64 a probability of nearly 1 stays below 1: in float32 those of sure answers would be ties.
        """
        assert self.logits is not None, "a metric with needs_probabilities has the logits kept"
        return self.logits.softmax(1)


def columns_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute of logits [B, classes] and labels [B] what is kept of each image, float64 [B, COLUMNS], in the
    order of the fields of `Answers`."""
    logarithms = logits.double().log_softmax(1)
    predicted = logits.argmax(1, keepdim=True)
    in_top = (logits.topk(min(TOP, logits.shape[1]), dim=1).indices == labels[:, None]).any(1, keepdim=True)
    of_truth = logarithms.gather(1, labels[:, None])
    sureness = logarithms.gather(1, predicted).exp()
    kept = (labels[:, None], predicted, -of_truth, sureness, in_top)
    return torch.cat([each.double() for each in kept], 1)
