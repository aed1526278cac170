"""Reads scikit-learn's digits: 1,797 grey images of 8x8 pixels, ten classes, no download."""

from __future__ import annotations

from importlib.metadata import distribution

import numpy as np

from trainable.data.source import ArraySource, Collection

FILE = "sklearn/datasets/data/digits.csv.gz"
"""The file that `sklearn.datasets.load_digits` reads; importing that takes 1.5 s of each process."""


def read() -> Collection:
    """Return the digits as uint8; scikit-learn has them as 0 to 16."""
    table = np.loadtxt(str(distribution("scikit-learn").locate_file(FILE)), delimiter=",")
    images = np.rint(table[:, :-1].reshape(-1, 8, 8) * (255.0 / 16.0)).astype(np.uint8)
    classes = tuple(str(digit) for digit in range(10))
    source = ArraySource(images, table[:, -1].astype(np.int64))
    return Collection("digits", "digits", classes, {"train": source})
