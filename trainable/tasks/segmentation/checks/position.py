"""Checks that the borders of masks lie on edges of their images, and not some pixels beside them.

A border between two classes is where an image changes, more often than not. So the gradient of the image,
averaged over the borders of its mask, is largest where the mask lies as it should. If it is larger some
pixels away, the mask was moved: by another crop, another centre when it was resized, or a wrong header.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainable.array_types import Floats
from trainable.checks.finding import Finding, passed, unchecked
from trainable.data import DataSet
from trainable.data.source import Pixels
from trainable.tasks.segmentation.checks.sampling import planes_at, positions_within

IMAGES = 100
FEWEST = 8  # with fewer images a larger mean says little
REACH = 8  # so many pixels away is looked in each direction
LARGEST = 512  # the middle of an image, of at most this side, is looked at
LEAST_BORDER = 30  # a mask needs so many border pixels that stay inside when it is moved

# Annotators draw borders a pixel outside or inside of an object, and shadows and resizing pull to one side by
# one; ours
MOVED = 2
SURE = 4.0  # a mean over images must be larger by so many standard errors of the difference
CLEARLY = 1.15  # it must be larger by this factor, too; ours


def check_position(data: DataSet) -> Finding:
    """Return whether the masks of a sample of training images lie where the images change."""
    positions = positions_within(data.train, IMAGES)
    pairs = [_middle(planes) for planes in planes_at(data, data.train, positions)]
    tables, others = [], []
    for (image, mask), (_, other) in zip(pairs, pairs[1:] + pairs[:1], strict=True):
        height, width = (min(each) for each in zip(image.shape, other.shape, strict=True))
        table, beside = (
            edges_at_borders(image, mask),
            _at_border(image[:height, :width], other[:height, :width]),
        )
        if table is not None and beside is not None:
            tables.append(table)
            others.append(beside)
    if len(tables) < FEWEST:
        return unchecked("mask position", f"{len(tables)} training masks have borders, too few to tell")
    return position_finding(np.stack(tables), np.array(others))


def edges_at_borders(image: Floats, mask: Pixels) -> Floats | None:
    """Return the mean gradient of a grey image [h, w] on the borders of its mask [h, w] when that is moved
    by -REACH to REACH pixels, [down, right], over that of all pixels; None for hardly a border."""
    if min(image.shape) <= 2 * REACH + 2:
        return None
    border = _border(mask)[REACH:-REACH, REACH:-REACH]
    gradient = np.hypot(*np.gradient(image))
    if border.sum() < LEAST_BORDER or gradient.mean() == 0.0:
        return None
    down, right = np.nonzero(border)
    offsets = range(2 * REACH + 1)
    found = [[gradient[down + below, right + beside].mean() for beside in offsets] for below in offsets]
    table: Floats = np.array(found) / gradient.mean()
    return table


def position_finding(tables: Floats, others: Floats) -> Finding:
    """Return the finding about tables [n, down, right] of `edges_at_borders`, and about the gradients on the
    borders of other images' masks, [n]."""
    mean, own = tables.mean(axis=0), tables[:, REACH, REACH]
    best = np.unravel_index(int(mean.argmax()), mean.shape)
    down, right = (int(each) - REACH for each in best)
    there = tables[:, best[0], best[1]]
    what = (
        f"on the borders of their masks {len(tables)} images change {own.mean():.2f} times as much as "
        "elsewhere"
    )
    moved = max(abs(down), abs(right)) >= MOVED and there.mean() > CLEARLY * own.mean()
    if moved and _is_larger(there, own):
        return Finding(
            "mask position",
            "warning",
            f"{what}, and {there.mean():.2f} times as much if masks are moved {_direction(down, right)}",
            "masks lie beside what they show: borders are learnt in the wrong place, and small objects not",
            "look at some images with their masks; crop, resize and turn both in the same way",
        )
    what = f"{what}; on those of other images' masks {others.mean():.2f} times"
    if not _is_larger(own, others):
        return Finding(
            "mask position",
            "warning",
            what,
            "a mask fits its image no better than another's does: masks are mixed up, or without edges",
            "look at some images with their masks, and at how their names are paired",
        )
    return passed("mask position", what)


def _is_larger(first: Floats, second: Floats) -> bool:
    """Return whether the mean over images, of pairs [n], is larger by more than luck."""
    gain = first - second
    return float(gain.mean()) > SURE * max(float(gain.std(ddof=1)) / math.sqrt(len(gain)), 1e-9)


def _direction(down: int, right: int) -> str:
    parts = [
        f"{abs(amount)} px {words[amount > 0]}"
        for amount, words in ((down, ("up", "down")), (right, ("left", "right")))
        if amount
    ]
    return " and ".join(parts)


def _at_border(image: Floats, mask: Pixels) -> float | None:
    """Return the mean gradient on the borders of a mask over that of all pixels; None as above."""
    if min(image.shape) < 2:
        return None
    border, gradient = _border(mask), np.hypot(*np.gradient(image))
    if border.sum() < LEAST_BORDER or gradient.mean() == 0.0:
        return None
    return float(gradient[border].mean() / gradient.mean())


def _border(mask: Pixels) -> NDArray[Any]:
    """Return whether a pixel has a neighbour below or to the right, or above or to the left, of another
    class; borders to what is ignored, 0, count as none."""
    border = np.zeros(mask.shape, np.bool_)
    for first, second in (((slice(1, None),), (slice(None, -1),)), _COLUMNS):
        differ = (mask[first] != mask[second]) & (mask[first] != 0) & (mask[second] != 0)
        border[first] |= differ
        border[second] |= differ
    return border


_COLUMNS = (slice(None), slice(1, None)), (slice(None), slice(None, -1))


def _middle(planes: Pixels) -> tuple[Floats, Pixels]:
    """Return the grey levels and the mask of the middle of an image, both [h, w]."""
    height, width = planes.shape[1:]
    top, left = max(0, (height - LARGEST) // 2), max(0, (width - LARGEST) // 2)
    shown = planes[:, top : top + LARGEST, left : left + LARGEST]
    return shown[:-1].mean(axis=0), shown[-1]
