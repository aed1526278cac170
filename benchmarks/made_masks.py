"""Renders two sets of images with masks, since published ones cannot be had without a download.

    python benchmarks/made_masks.py shapes FOLDER [--images 160]

`shapes`: discs, squares, triangles and rings, of any size and colour, over each other on a coloured ground
with noise; five classes. No class has a colour of its own: the outline alone tells it. `textures` is another
kind, which no rule was measured on: regions that differ by the direction of their stripes; four classes.
Images have sizes between 96 and 160 pixels. They are a function of the seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

Pixels = NDArray[np.uint8]
SMALLEST, LARGEST = 96, 160
SHAPES = ("ground", "disc", "square", "triangle", "ring")
TEXTURES = ("level", "upright", "rising", "falling")
NOISE = 14.0


def shapes(random: np.random.Generator) -> tuple[Pixels, Pixels]:
    """Return an image uint8 [H, W, 3] and its mask uint8 [H, W]."""
    width, height = (int(each) for each in random.integers(SMALLEST, LARGEST + 1, 2))
    image = Image.new("RGB", (width, height), _colour(random))
    mask = Image.new("L", (width, height), 0)
    for _ in range(random.integers(3, 9)):
        kind, side = int(random.integers(1, len(SHAPES))), float(random.uniform(10, 46))
        centre = random.uniform((0, 0), (width, height))
        colour, angle = _colour(random), random.uniform(0, 2 * np.pi)
        for drawn, value in ((ImageDraw.Draw(image), colour), (ImageDraw.Draw(mask), kind)):
            _draw(drawn, kind, centre, side / 2, angle, value)
    blurred = np.asarray(image.filter(ImageFilter.GaussianBlur(0.7)), np.float64)
    return _noisy(blurred, random), np.asarray(mask)


def textures(random: np.random.Generator) -> tuple[Pixels, Pixels]:
    """Return an image uint8 [H, W, 3] and its mask uint8 [H, W]: each pixel belongs to the nearest of a few
    points."""
    width, height = (int(each) for each in random.integers(SMALLEST, LARGEST + 1, 2))
    points = random.uniform((0, 0), (height, width), (int(random.integers(4, 9)), 2))
    kinds = random.integers(0, len(TEXTURES), len(points))
    rows, columns = np.mgrid[:height, :width]
    nearest = ((rows[..., None] - points[:, 0]) ** 2 + (columns[..., None] - points[:, 1]) ** 2).argmin(2)
    mask = kinds[nearest].astype(np.uint8)
    angles = np.array([0.0, np.pi / 2, np.pi / 4, -np.pi / 4])[mask]
    period, phase = random.uniform(5, 9), random.uniform(0, 2 * np.pi)
    waves = np.sin((rows * np.cos(angles) + columns * np.sin(angles)) * 2 * np.pi / period + phase)
    light, dark = (np.array(_colour(random), np.float64) for _ in range(2))
    return _noisy(dark + (light - dark) * (waves[..., None] + 1) / 2, random), mask


def write_set(kind: str, folder: Path, images: int, seed: int = 0) -> Path:
    """Write `images/`, `masks/` and `classes.txt` under a folder. Return the folder."""
    render, names = KINDS[kind]
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number in range(images):
        image, mask = render(np.random.default_rng([seed, number]))
        Image.fromarray(image).save(folder / "images" / f"{number:04}.png")
        Image.fromarray(mask).save(folder / "masks" / f"{number:04}.png")
    (folder / "classes.txt").write_text("\n".join(names) + "\n")
    return folder


Render = Callable[[np.random.Generator], tuple[Pixels, Pixels]]
KINDS: dict[str, tuple[Render, tuple[str, ...]]] = {
    "shapes": (shapes, SHAPES),
    "textures": (textures, TEXTURES),
}


def _colour(random: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(each) for each in random.integers(30, 226, 3))


def _noisy(image: NDArray[np.float64], random: np.random.Generator) -> Pixels:
    return (image + random.normal(0.0, NOISE, image.shape)).clip(0, 255).astype(np.uint8)


def _draw(
    drawn: ImageDraw.ImageDraw, kind: int, centre: NDArray[Any], radius: float, angle: float, value: Any
) -> None:
    x, y = centre
    around = [x - radius, y - radius, x + radius, y + radius]
    match SHAPES[kind]:
        case "disc":
            drawn.ellipse(around, fill=value)
        case "ring":
            drawn.ellipse(around, outline=value, width=max(3, round(radius / 2.5)))
        case "square":
            drawn.polygon(_corners(x, y, radius, angle, 4), fill=value)
        case "triangle":
            drawn.polygon(_corners(x, y, radius, angle, 3), fill=value)


def _corners(x: float, y: float, radius: float, angle: float, count: int) -> list[tuple[float, float]]:
    turns = angle + np.arange(count) * 2 * np.pi / count
    return [(x + radius * float(np.cos(each)), y + radius * float(np.sin(each))) for each in turns]


def main() -> None:
    parser = argparse.ArgumentParser(description="Render a set of images with masks.")
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(write_set(options.kind, options.folder, options.images, options.seed))


if __name__ == "__main__":
    main()
