"""Writes small images with masks, which the tests of segmentations share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tests.trainable.small_images import write_image

SIZE = (12, 10)  # width and height, as those of a small image


def bands(*values: int, size: tuple[int, int] = SIZE) -> NDArray[np.uint8]:
    """Return a mask, uint8 [H, W], whose rows have these values, one after the other and again."""
    rows = np.resize(np.array(values, np.uint8), size[1])
    return np.repeat(rows[:, None], size[0], axis=1)


def write_mask(path: Path, mask: NDArray[np.generic], mode: str | None = None) -> Path:
    """Write a mask, and its folders; in mode P its values are indices into a palette of colours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(mask)
    if mode == "P":
        image.putpalette(np.random.default_rng(0).integers(0, 256, 768, dtype=np.uint8).tobytes())
    elif mode is not None:
        image = image.convert(mode)
    if path.suffix == ".gif":
        image.save(path, optimize=False)  # it would number colours anew
    else:
        image.save(path)
    return path


def write_pairs(root: Path, masks: Mapping[str, Sequence[int]], images: str = "images") -> Path:
    """Write images as JPEG and masks as PNG, of these names, in folders beside each other."""
    for name, values in masks.items():
        write_image(root / images / f"{name}.jpg")
        write_mask(root / "masks" / f"{name}.png", bands(*values))
    return root
