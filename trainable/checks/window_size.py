"""Checks the size of the windows that are trained on against that of the images."""

from __future__ import annotations

import numpy as np

from trainable.checks.finding import Finding, passed
from trainable.checks.mask_sampling import sizes_of
from trainable.data import DataSet

EMPTY = 0.25
"""From this share on, what is filled up around images costs time for nothing; ours."""
LITTLE = 1 / 16
"""A window with less than this share of an image's pixels, a quarter of each side, sees details without what
they are part of; ours. Larger windows help up to the image's size (000:49)."""


def check_window(data: DataSet) -> Finding:
    """Return whether windows are about as large as the training images, or smaller by no more than a few
    times."""
    side, sizes = data.info.image_size, sizes_of(data.train)
    height, width = np.median(sizes, axis=0).astype(int).tolist()
    inside = np.minimum(sizes, side).prod(axis=1) / side**2
    seen = float(np.median(np.minimum(sizes, side).prod(axis=1) / sizes.prod(axis=1)))
    what = f"windows of {side} px, images of mostly {width} x {height} px (width x height)"
    if (empty := 1.0 - float(inside.mean())) >= EMPTY:
        return Finding(
            "window",
            "warning",
            f"{what}: {empty:.0%} of what windows show lies outside of an image",
            "it is black and counts nowhere, but costs as much time as an image, and blurs batch statistics",
            f"data.image_size: {_on_grid(min(height, width))}, or the images' longer side at most",
        )
    if seen < LITTLE:
        return Finding(
            "window",
            "note",
            f"{what}: one shows {seen:.1%} of an image",
            "the network sees details without what they are part of; if they tell the classes, it is enough",
            f"try data.image_size: {_on_grid(min(height, width, 4 * side))}: larger windows help up to the "
            "images' size (training tricks notes, 000:49)",
        )
    return passed("window", what)


def _on_grid(side: int) -> int:
    step = 32 if side >= 64 else 8
    return max(step, side // step * step)
