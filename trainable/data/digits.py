"""Reads scikit-learn's digits: 1,797 grey images of 8x8 pixels, ten classes, no download."""

from __future__ import annotations

import numpy as np

from trainable.data.source import ArraySource, Collection


def read() -> Collection:
    """Returns the digits as uint8; scikit-learn has them as 0 to 16."""
    from sklearn.datasets import load_digits  # a second to import: only where it is used

    bundle = load_digits()
    images = np.rint(bundle.images * (255.0 / 16.0)).astype(np.uint8)
    classes = tuple(str(digit) for digit in range(10))
    source = ArraySource(images, bundle.target.astype(np.int64))
    return Collection("digits", "digits", classes, {"train": source})
