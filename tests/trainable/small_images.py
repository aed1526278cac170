"""Writes image files that the tests of data sets share: small, and each known by its colour."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image


def write_image(path: Path, value: int = 128, size: tuple[int, int] = (12, 10), mode: str = "RGB") -> Path:
    """Write an image of one grey level, width x height, and its folders; the ending gives the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, value).convert(mode).save(path)
    return path


def write_classes(root: Path, counts: Mapping[str, int]) -> Path:
    """Write class folders with so many PNG images each."""
    for name, count in counts.items():
        for number in range(count):
            write_image(root / name / f"{number:03}.png", value=number % 256)
    return root


def truncate(path: Path) -> Path:
    """Cut the last tenth off a file."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 9 // 10])
    return path


def write_noise_jpeg(path: Path, seed: int = 0, size: int = 64) -> Path:
    """Write as much detail as a photograph has, so that a cut leaves pixels out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, quality=90)
    return path
