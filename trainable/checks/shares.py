"""Checks that classes have the same shares in all parts: of images, or of pixels where images have masks."""

from __future__ import annotations

from collections.abc import Iterator

from trainable.checks.finding import Finding
from trainable.checks.label_shares import check_label_shares
from trainable.checks.mask_counts import count_masks
from trainable.checks.mask_shares import check_pixel_shares
from trainable.data import DataSet


def check_shares(data: DataSet) -> Iterator[Finding]:
    """Yield a finding for validation against training, and for the test part against both."""
    if data.info.dense:
        yield from check_pixel_shares(data, count_masks(data))
    else:
        yield from check_label_shares(data)
