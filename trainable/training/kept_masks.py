"""Keeps the masks that a model predicts for a part, small: they are compressed to about a fiftieth."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import final

import numpy as np
from torch import Tensor

from trainable.data.source import Integers, Pixels

LEVEL = 1
"""The quickest compression: masks are of few values in large areas."""


@final
class KeptMasks:
    """Holds the likeliest class of each pixel of the images that `take` was shown (`Run.score`)."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[bytes, tuple[int, int]]] = {}

    def take(self, positions: Integers, outputs: Tensor) -> None:
        """Keep the answers to a batch, logits [B, classes, H, W]; of equal ones the first class."""
        masks = outputs.argmax(1).byte().cpu().numpy()
        for position, mask in zip(positions.tolist(), masks, strict=True):
            self._kept[position] = zlib.compress(mask.tobytes(), LEVEL), mask.shape

    def mask(self, position: int) -> Pixels:
        """Return the mask of the image at a position, uint8 [H, W]."""
        content, size = self._kept[position]
        return np.frombuffer(zlib.decompress(content), np.uint8).reshape(size)

    @property
    def positions(self) -> Sequence[int]:
        """The positions of all images that were shown, in order."""
        return sorted(self._kept)
