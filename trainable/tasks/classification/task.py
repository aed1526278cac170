"""One label an image: the loss, and the scores of a part."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from trainable.augmentation.mixing import make_mixing
from trainable.ranks import ALONE, Ranks
from trainable.recipe import augmentations as specs
from trainable.training.answers import COLUMNS, TOP, Answers, RankRows, columns_of
from trainable.training.evaluate import TOP_FROM_CLASSES, Outputs, Scores, main_output
from trainable.training.metrics import worst
from trainable.training.task import BatchMixing, BatchWeight, Compared, Comparison, Task

MATRIX_CLASSES = 255  # as many as masks have; a matrix of 10,000 classes would take 800 MB


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
        accuracy, loss = worst("val_accuracy", self.classes), worst("val_loss", self.classes)
        top5 = accuracy if self.classes >= TOP_FROM_CLASSES else None
        return Scores(loss, accuracy, accuracy, top5, images)


def compared_labels(output: Tensor, targets: Tensor, answers: Tensor) -> Compared:
    """Return the logits of both networks; the true class of a mixed image is the one with the largest
    share."""
    truth = targets.argmax(1) if targets.is_floating_point() else targets
    return Compared(output, answers.to(output.dtype), truth)


@final
class LabelTally:
    """Sums of results on the device, all in one vector of float64 (counts are exact up to 2^53).

    With `rows`, the vector also holds the answer to each image, in a row of its own that other ranks leave
    zero: so one sum over ranks gathers them, exactly, and the device is still read once. This takes 40 bytes
    an image, and 8 * classes more with the logits.
    """

    def __init__(
        self, classes: int, device: torch.device, confusion: bool = False, rows: RankRows | None = None
    ) -> None:
        self._classes, self._rows, self._added = classes, rows, 0
        self._pairs = classes * classes if confusion and classes <= MATRIX_CLASSES else 0
        columns = COLUMNS + (classes if rows is not None and rows.logits else 0)
        cells = rows.images * columns if rows is not None else 0
        sizes = [2, classes, classes, self._pairs, cells]
        self._vector = torch.zeros(sum(sizes), dtype=torch.float64, device=device)
        firsts, self._seen, self._right, self._confusion, answers = self._vector.split(sizes)
        self._loss, self._top5 = firsts[0], firsts[1]
        self._table = answers.view(-1, columns)

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Add logits [B, classes] and labels [B]."""
        predicted = logits.argmax(1)
        ones = torch.ones_like(labels, dtype=torch.float64)
        self._loss += functional.cross_entropy(logits, labels, reduction="sum")
        self._seen.index_add_(0, labels, ones)  # bincount would make a CUDA device wait for the host
        self._right.index_add_(0, labels, (predicted == labels).double())
        if self._classes >= TOP_FROM_CLASSES:
            self._top5 += (logits.topk(TOP, dim=1).indices == labels[:, None]).sum()
        if self._pairs:
            self._confusion.index_add_(0, labels * self._classes + predicted, ones)
        if self._rows is not None:
            rows = self._rows.mine[self._added : self._added + len(labels)]
            found = columns_of(logits, labels)
            if self._rows.logits:
                found = torch.cat([found, logits.double()], 1)
            self._table.index_copy_(0, rows, found)
            self._added += len(labels)

    def scores(self, ranks: Ranks = ALONE) -> Scores:
        """Return the scores over everything that all ranks added. Raises ValueError if that is nothing."""
        vector = ranks.reduce(self._vector)
        if self._rows is not None:
            vector = vector.to("cpu")  # all of it at once
        sums, cells = vector.split([len(vector) - self._table.numel(), self._table.numel()])
        loss, top5, *counts = sums.tolist()
        seen, right = counts[: self._classes], counts[self._classes : 2 * self._classes]
        images = int(sum(seen))
        if images == 0:
            raise ValueError("no images to score")
        recalls = [hits / count for hits, count in zip(right, seen, strict=True) if count]
        return Scores(
            loss=loss / images,
            accuracy=sum(right) / images,
            balanced_accuracy=sum(recalls) / len(recalls),
            top5_accuracy=top5 / images if self._classes >= TOP_FROM_CLASSES else None,
            images=images,
            confusion=self._matrix(counts[2 * self._classes :]) if self._pairs else None,
            answers=Answers.of_table(cells.view(self._table.shape), self._classes) if self._rows else None,
        )

    def _matrix(self, flat: list[float]) -> tuple[tuple[int, ...], ...]:
        rows = range(0, self._pairs, self._classes)
        return tuple(tuple(int(count) for count in flat[row : row + self._classes]) for row in rows)
