"""Checks masks without training a network: what they show, where, and in windows of which size."""

from __future__ import annotations

from collections.abc import Iterator

from trainable.checks.finding import Finding
from trainable.checks.mask_counts import (
    check_classes,
    check_guessing,
    check_ignored,
    check_values,
    count_masks,
)
from trainable.checks.mask_position import check_position
from trainable.checks.mask_shares import check_pixel_shares
from trainable.checks.window_size import check_window
from trainable.data import DataSet
from trainable.recipe import Recipe


def check_masks(data: DataSet, recipe: Recipe) -> Iterator[Finding]:
    """Yield findings about the masks of all parts: classes, ignored pixels, values, shares, places, windows.

    Raises DataError naming an image that cannot be decoded.
    """
    counts = count_masks(data)
    yield check_values(data, counts["train"])
    yield from check_classes(data, counts, recipe)
    yield from check_ignored(counts)
    yield from check_pixel_shares(data, counts)
    yield check_guessing(data, counts["validation"])
    yield check_position(data)
    yield check_window(data)
