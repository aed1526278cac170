"""Scores of masks on a part of the data, exact: of all its pixels, never a mean over batches or ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from trainable.augmentation.draws import moved
from trainable.ranks import ALONE, Ranks
from trainable.recipe.tasks import IGNORED, Segmentation
from trainable.tasks.segmentation.answers import MEANS, MaskAnswers, columns_of, pixels_of, rows_of
from trainable.tasks.segmentation.losses import cross_entropy, enlarged
from trainable.training.answers import RankRows
from trainable.training.evaluate import Array, Scores
from trainable.training.extra_metrics import Metric, called_with
from trainable.training.metrics import worst


def worst_mask_scores(classes: int, images: int = 0) -> Scores:
    """Return the finite scores that stand for a model which is lost, without metrics that are asked for."""
    accuracy = worst("val_accuracy", classes)
    extra = dict.fromkeys(Segmentation.scores, 0.0)
    return Scores(worst("val_loss", classes), accuracy, accuracy, None, images, extra=extra)


@final
class MaskTally:
    """Sums of results on the device, all in one vector of float64 (counts are exact up to 2^53).

    With a `tolerance`, a share of an image's diagonal, the boundary F1 score is measured, too; and so are the
    caller's `own` functions of the predicted and the true mask of an image, [H, W] int64, whose mean over
    images is taken. They run on the host, for which every batch is waited for; nothing else waits.

    With `rows`, the vector also holds what each image adds, in a row of its own that other ranks leave zero:
    so one sum over ranks gathers them, exactly. This takes 8 * (3 * classes + 1) bytes an image, and more
    for boundaries and own functions.
    """

    def __init__(
        self,
        classes: int,
        device: torch.device,
        confusion: bool = False,
        *,
        tolerance: float | None = None,
        own: Mapping[str, Metric] | None = None,
        rows: RankRows | None = None,
    ) -> None:
        self._classes, self._confusion = classes, confusion
        self._tolerance, self._own = tolerance, own or {}
        self._rows, self._added = rows, 0
        columns = columns_of(classes, len(self._own), boundaries=tolerance is not None)
        cells = rows.images * columns if rows is not None else 0
        self._sizes = [2, classes * classes + 1, 2 * classes, len(self._own), cells]
        self._vector = torch.zeros(sum(self._sizes), dtype=torch.float64, device=device)
        firsts, self._cells, boundaries, self._values, table = self._vector.split(self._sizes)
        self._loss, self._images = firsts[0], firsts[1]
        self._boundaries, self._table = boundaries.view(2, classes), table.view(-1, columns)

    def add(self, outputs: Tensor, masks: Tensor) -> None:
        """Add logits [B, classes, h, w], which are enlarged to the masks if they are smaller, and masks [B,
        H, W], int64; batches may have different sizes."""
        logits = enlarged(outputs, masks)
        predicted, losses, others = logits.argmax(1), cross_entropy(logits, masks), list[Tensor]()
        self._loss += losses.sum()
        self._images += len(masks)
        self._add_pixels(predicted, masks)
        if self._tolerance is not None:
            scores, there = boundary_f1(predicted, masks, self._classes, self._tolerance)
            self._boundaries += torch.stack([scores.sum(0), there.sum(0)])
            others.append(torch.stack([scores, there.to(scores.dtype)], 1))
        if self._own:
            values = self._own_values(predicted, masks)
            self._values += values.sum(0)
            others.append(values)
        if self._rows is not None:
            rows = self._rows.mine[self._added : self._added + len(masks)]
            self._table.index_copy_(0, rows, rows_of(losses, predicted, masks, self._classes, others))
            self._added += len(masks)

    def _add_pixels(self, predicted: Tensor, masks: Tensor) -> None:
        """Count pairs of a true and a predicted class.

        bincount would make a CUDA device wait for the host, and so would a choice of the counted pixels: so
        ignored pixels have a cell of their own, which is not read.
        """
        pairs = masks * self._classes + predicted
        pairs = pairs.masked_fill(masks == IGNORED, self._classes**2).flatten()
        self._cells.index_add_(0, pairs, torch.ones_like(pairs, dtype=torch.float64))

    def _own_values(self, predicted: Tensor, masks: Tensor) -> Tensor:
        """Return what the caller's functions make of each image, [B, functions]: zeros if the model is lost,
        whose answers mean nothing."""
        values = torch.zeros(len(masks), len(self._own), dtype=torch.float64)
        if math.isfinite(self._loss.item()):
            pairs = list(zip(predicted.cpu(), masks.cpu(), strict=True))
            for number, (name, metric) in enumerate(self._own.items()):
                values[:, number] = torch.tensor(
                    [called_with(name, metric, *pair) for pair in pairs], dtype=torch.float64
                )
        return moved(values, self._values.device)

    def scores(self, ranks: Ranks = ALONE) -> Scores:
        """Return the scores over everything that all ranks added.

        Accuracy is the share of counted pixels that are right, balanced accuracy the mean recall over the
        classes that masks have (arXiv 1411.4038, section 5: pixel accuracy, mean accuracy). The loss is the
        mean over images of the cross-entropy, as `mask_loss` has it. For `mean_iou` and `mean_dice` see
        `overlaps`. Raises ValueError if no image was added, or none with a pixel that counts.
        """
        vector = ranks.reduce(self._vector).cpu().numpy()
        (loss, images), cells, boundaries, own, table = np.split(vector, np.cumsum(self._sizes)[:-1])
        matrix = cells[:-1].reshape(self._classes, self._classes)
        _check_scored(images, matrix)
        right, seen = matrix.diagonal(), matrix.sum(1)
        by_class = overlaps(matrix)
        if self._tolerance is not None:
            by_class["boundary_f1"] = _shares(*boundaries.reshape(2, -1))
        means = {MEANS[name]: _mean(values) for name, values in by_class.items()}
        return Scores(
            loss=float(loss / images),
            accuracy=float(right.sum() / seen.sum()),
            balanced_accuracy=_mean(_shares(right, seen)),
            top5_accuracy=None,
            images=int(images),
            confusion=tuple(tuple(map(int, row)) for row in matrix) if self._confusion else None,
            extra=means | dict(zip(self._own, (own / images).tolist(), strict=True)),
            by_class=by_class,
            by_image=self._answers(table) if self._rows is not None else None,
        )

    def _answers(self, table: Array) -> MaskAnswers:
        return MaskAnswers.of_table(
            table.reshape(self._table.shape),
            self._classes,
            tuple(self._own),
            boundaries=self._tolerance is not None,
        )


def _check_scored(images: float, matrix: Array) -> None:
    if images == 0:
        raise ValueError("no images to score")
    if not matrix.any():
        raise ValueError("no pixels to score: all of them are ignored")


def overlaps(matrix: Array) -> dict[str, tuple[float | None, ...]]:
    """Return the IoU and the Dice coefficient of each class, of a matrix [true, predicted] of pixels.

    Where TP, FP and FN are the class's pixels that are right, wrongly of it and wrongly not of it, IoU is TP
    / (TP + FP + FN) and Dice 2 TP / (2 TP + FP + FN). Both are None for a class that is in no mask and is
    predicted nowhere: it is left out of means, and a class that is only predicted counts as 0.
    """
    right, sums = matrix.diagonal(), matrix.sum(0) + matrix.sum(1)
    return {"iou": _shares(right, sums - right), "dice": _shares(2 * right, sums)}


def _shares(parts: Array, wholes: Array) -> tuple[float | None, ...]:
    return tuple(
        part / whole if whole else None for part, whole in zip(parts.tolist(), wholes.tolist(), strict=True)
    )


def _mean(values: tuple[float | None, ...]) -> float:
    """Return the mean of the values that there are."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known)


def boundary_f1(predicted: Tensor, masks: Tensor, classes: int, tolerance: float) -> tuple[Tensor, Tensor]:
    """Return the boundary F1 score of each class of each image, and whether it is there; both [B, classes].

    A class is there if the image's mask or its prediction has it; elsewhere the score is 0. `tolerance` is a
    share of the image's diagonal, at least one pixel: how near a boundary pixel must be to one of the other
    boundary of its class, measured between centres. Precision is the share of predicted boundary pixels that
    are near a true one, recall the share of true ones that are near a predicted one, and the score is their
    harmonic mean (Csurka et al., What is a good evaluation measure for semantic segmentation?, BMVC 2013,
    section 3). That does not say what a class scores that fills an image: if neither mask has a boundary of
    a class that both have, the score is 1.
    """
    predicted = predicted.masked_fill(masks == IGNORED, IGNORED)
    edges, true_edges = edges_of(predicted), edges_of(masks)
    near, true_near = near_each_other(edges, true_edges, radius_of(masks, tolerance))
    precision = _share(near, edges, classes)
    recall = _share(true_near, true_edges, classes)
    score = 2.0 * precision * recall / (precision + recall).clamp_min(torch.finfo(precision.dtype).tiny)
    there, truly = (pixels_of(each, classes) > 0 for each in (predicted, masks))
    bare = (pixels_of(edges, classes) + pixels_of(true_edges, classes)) == 0
    return score.masked_fill(bare & there & truly, 1.0), there | truly


def radius_of(masks: Tensor, tolerance: float) -> float:
    """Return a share of the diagonal of masks in pixels, at least 1."""
    return max(1.0, tolerance * math.hypot(*masks.shape[-2:]))


def edges_of(masks: Tensor) -> Tensor:
    """Return masks, as bytes, in which only boundary pixels keep their label and all others are ignored.

    A boundary pixel has a neighbour of another class above, below, left or right; the border of the image is
    no boundary.
    """
    edge = torch.zeros_like(masks, dtype=torch.bool)
    for axis in (1, 2):
        length = masks.shape[axis] - 1
        first, second = masks.narrow(axis, 0, length), masks.narrow(axis, 1, length)
        differ = (first != second) & (first != IGNORED) & (second != IGNORED)
        edge.narrow(axis, 0, length).logical_or_(differ)
        edge.narrow(axis, 1, length).logical_or_(differ)
    return masks.masked_fill(~edge, IGNORED).byte()


def near_each_other(edges: Tensor, others: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Return, for boundary pixels [B, H, W] of each kind, the labels of those near one of the other kind of
    the same label; all others are ignored.

    Both are shifted against each other by every offset in a disk. So the cost grows with the disk's area, but
    not with the number of classes; with the usual tolerance there are 97 offsets for 512 x 512 pixels, and
    933 for 1,024 x 2,048.
    """
    reach, (height, width) = int(radius), edges.shape[-2:]
    others = functional.pad(others, [reach] * 4, value=IGNORED)
    near, other_near = torch.zeros_like(edges, dtype=torch.bool), torch.zeros_like(others, dtype=torch.bool)
    for down, across in disk(radius):
        rows = slice(reach + down, reach + down + height)
        columns = slice(reach + across, reach + across + width)
        same = edges == others[:, rows, columns]
        near |= same
        other_near[:, rows, columns] |= same
    found, other_found = edges.masked_fill(~near, IGNORED), others.masked_fill(~other_near, IGNORED)
    return found, other_found[:, reach : reach + height, reach : reach + width]


def disk(radius: float) -> list[tuple[int, int]]:
    """Return the whole offsets (down, across) that are no longer than the radius."""
    reach = range(-int(radius), int(radius) + 1)
    return [(down, across) for down in reach for across in reach if math.hypot(down, across) <= radius]


def _share(found: Tensor, edges: Tensor, classes: int) -> Tensor:
    """Return the share of boundary pixels that were found, for each class, [B, classes]; 0 of none."""
    return pixels_of(found, classes) / pixels_of(edges, classes).clamp_min(1.0)
