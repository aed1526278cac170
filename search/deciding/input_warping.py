"""Bends the axes of a space, so that a smooth model fits scores which change fast near one end of a range.

A position x in [0, 1] becomes 1 - (1 - x^a)^b, the Kumaraswamy distribution's function, which is close to
that of the Beta distribution in Snoek et al. (arXiv 1402.0929, section 3) and has a simple slope. With a = b
= 1 nothing is bent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

EDGE = 1e-6  # positions keep so far from the ends, where slopes can be infinite


def warped(features: Floats, shapes: Floats, bends: NDArray[np.bool_]) -> Floats:
    """Return features (n, columns) on bent axes.

    `shapes` are the logarithms of a and b of each column, (2, columns); `bends` says which columns are
    positions, (columns,). The others stay as they are.
    """
    a, b = np.exp(shapes[:, bends])
    bent = features.copy()
    bent[:, bends] = 1.0 - (1.0 - _inside(features[:, bends]) ** a) ** b
    return bent


def slopes(features: Floats, shapes: Floats, bends: NDArray[np.bool_]) -> Floats:
    """Return the derivatives of what `warped` returns by the two rows of `shapes`, (2, n, columns)."""
    a, b = np.exp(shapes[:, bends])
    x = _inside(features[:, bends])
    power = x**a
    found = np.zeros((2, *features.shape))
    found[0][:, bends] = a * b * (1.0 - power) ** (b - 1.0) * power * np.log(x)
    found[1][:, bends] = -b * (1.0 - power) ** b * np.log1p(-power)
    return found


def _inside(positions: Floats) -> Floats:
    inside: Floats = np.clip(positions, EDGE, 1.0 - EDGE)
    return inside
