"""Says which images are compared for leaks between parts, and how bad a leak is."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from trainable.checks.finding import Level
from trainable.data import DataSet, Split
from trainable.data.measure import some
from trainable.data.source import Integers

MOST = 50_000
"""At most so many images are compared; a larger set is sampled."""

DECODED = 2_000
"""Up to so many images in files, all are decoded.
Of more, the files are compared: a copy is an equal file."""

LEAKING = 0.05
"""From this share of a part on, images that are also in training make its scores worthless: a perfect memory
gains up to five points, more than recipes differ by."""


def chosen_positions(data: DataSet, most: int | None) -> dict[Split, Integers]:
    """Return positions by part, at most `most` (None: all of them):
    the parts that are scored come first, as each of their images counts."""
    if most is None:
        return {name: np.arange(len(part)) for name, part in data.parts.items()}
    left, chosen = most, dict[Split, Integers]()
    for name, part in sorted(data.parts.items(), key=lambda item: len(item[1])):
        share = left if name == "train" else min(left, most // 4)
        chosen[name] = some(len(part), share)
        left -= len(chosen[name])
    return chosen


def extent_of(data: DataSet, chosen: Mapping[Split, Integers]) -> str:
    """Return in words how many of the images are compared."""
    total, compared = sum(map(len, data.parts.values())), sum(map(len, chosen.values()))
    return (
        f"all {total:,} compared" if compared == total else f"a sample of {compared:,} of {total:,} compared"
    )


def leak_level(share: float, images: int) -> Level:
    """Return the level by the effect on the score: hidden in its noise, visible, or decisive."""
    if share >= LEAKING:
        return "error"
    return "note" if share < math.sqrt(0.25 / images) and share < 0.01 else "warning"
