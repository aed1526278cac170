"""Compares the boundaries of predicted and true masks: the boundary F1 score.

Masks are int64 [B, H, W]; pixels that are labelled `IGNORED` have no boundary, and make none of their
neighbours'. Everything is computed on the device, and nothing waits for it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from trainable.recipe.tasks import IGNORED


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


def pixels_of(masks: Tensor, classes: int) -> Tensor:
    """Return the number of pixels of each class, float64 [B, classes]."""
    labels = masks.flatten(1).to(torch.int64)
    labels = labels.masked_fill(labels == IGNORED, classes)  # a cell of their own, which is dropped
    counts = torch.zeros(len(masks), classes + 1, dtype=torch.float64, device=masks.device)
    return counts.scatter_add_(1, labels, torch.ones_like(labels, dtype=torch.float64))[:, :classes]
