"""Makes small images with masks: bright squares and dark discs on grey noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trainable.bench import ON_CPU
from trainable.data import DataSet
from trainable.recipe import Recipe
from trainable.tasks.kits import load_for

CLASSES = ("ground", "square", "disc")
Sizes = tuple[tuple[int, int], ...]


def drawn(seed: int, height: int, width: int, channels: int = 3) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return an image uint8 [H, W, C] (or [H, W]) with a square and a disc, and its mask uint8 [H, W]."""
    random = np.random.default_rng(seed)
    mask = np.zeros((height, width), np.uint8)
    side = max(3, min(height, width) // 4)
    top, left = random.integers(0, height - side), random.integers(0, width - side)
    mask[top : top + side, left : left + side] = 1
    rows, columns = np.ogrid[:height, :width]
    centre = random.integers(side // 2, height - side // 2), random.integers(side // 2, width - side // 2)
    mask[(rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 <= (side / 2) ** 2] = 2
    levels = np.array([110, 210, 30])[mask][:, :, None] + random.normal(0.0, 12.0, (height, width, channels))
    image = levels.clip(0, 255).astype(np.uint8)
    return (image[:, :, 0] if channels == 1 else image), mask


def write_masks(root: Path, count: int = 24, sizes: Sizes = ((32, 32),), channels: int = 3) -> Path:
    """Write `images/` and `masks/` under a folder, of these sizes in turn, and the names of the classes."""
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        height, width = sizes[number % len(sizes)]
        image, mask = drawn(number, height, width, channels)
        Image.fromarray(image).save(root / "images" / f"{number:03}.png")
        Image.fromarray(mask).save(root / "masks" / f"{number:03}.png")
    (root / "classes.txt").write_text("\n".join(CLASSES) + "\n")
    return root


def mask_recipe(root: Path, values: dict[str, Any] | None = None) -> Recipe:
    """Return a recipe that learns these masks in a moment, in fp32."""
    tree = {
        "task": {"kind": "segmentation", "masks": {"classes": str(root / "classes.txt")}},
        "data": {"path": str(root), "image_size": 16},
        "model": {"kind": "unet_small", "levels": 2, "width": 8},
        "loop": {"epochs": 2, "batch_size": 4, "workers": 0},
        "optimizer": {"kind": "adamw", "lr": 0.01, "scaling": "none"},
        "precision": {"kind": "fp32"},
        "evaluation": {"norm_batches": 0},
    }
    return Recipe.from_tree(tree).with_values(values or {})


def mask_data(recipe: Recipe) -> DataSet:

    return load_for(recipe, ON_CPU)
