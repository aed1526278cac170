"""Finds what a split of images with masks keeps in proportion: the rarest class that each image shows.

A class that few images show is then in every part, if anyhow possible. Iterative stratification (Sechidis et
al., 2011) balances all classes, but gives no label to an image, which the splits here need.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainable.data.source import Integers

Shown = NDArray[np.bool_]
"""Whether each image shows each class: bool [N, K]."""

LEAST = 3
"""There are so many parts, and each needs an image, or a group, of each stratum."""


@dataclass(frozen=True)
class Strata:
    """Says to which stratum an image belongs."""

    order: tuple[int, ...]
    """The classes, the rarest first."""
    numbers: tuple[int, ...]
    """The stratum of images whose rarest class is at each position of the order."""
    named_by: tuple[int, ...]
    """The most common class of each stratum."""

    def labels(self, shown: Shown) -> Integers:
        """Return each image's stratum, [N]. An image that shows nothing belongs to the commonest class."""
        return np.array(self.numbers, np.int64)[_rarest(shown, self.order)]


def strata_of(shown: Shown, units: Integers | None = None) -> Strata:
    """Return the strata of images, each with at least three of them, or of the groups in `units`, [N].

    Classes are rare or common by how many of these images show them. One that is the rarest of too few images
    is joined with the next more common one. There is one stratum if there are too few images for two.
    """
    order = tuple(np.argsort(shown.sum(axis=0), kind="stable").tolist())
    rarest = _rarest(shown, order)
    units = np.arange(len(shown)) if units is None else units
    numbers, named_by, open_units = list[int](), list[int](), set[int]()
    for position, label in enumerate(order):
        open_units |= set(units[rarest == position].tolist())
        numbers.append(len(named_by))
        if len(open_units) >= LEAST:
            named_by.append(label)
            open_units = set()
    last = max(0, len(named_by) - 1)
    return Strata(order, tuple(min(each, last) for each in numbers), (*named_by[:-1], order[-1]))


def _rarest(shown: Shown, order: tuple[int, ...]) -> Integers:
    """Return the position in the order of the rarest class that each image shows, [N]."""
    in_order = shown[:, order]
    return np.where(in_order.any(axis=1), in_order.argmax(axis=1), len(order) - 1)
