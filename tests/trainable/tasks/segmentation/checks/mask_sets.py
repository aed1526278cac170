"""Makes data sets of small images with masks, sound ones and with faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.trainable.small_segmentations import mask_data, mask_recipe, write_masks
from trainable.data import DataSet
from trainable.recipe import Recipe
from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.checks.sampling import planes_at
from trainable.tasks.segmentation.data.parts import MaskedPart

Array = NDArray[Any]
SIDE = 48


def sound_recipe(root: Path, values: dict[str, Any] | None = None) -> Recipe:
    """Write 60 images in two sizes, and return a recipe that learns their masks."""
    write_masks(root, count=60, sizes=((64, 64), (56, 80)))
    return mask_recipe(root, {"data.image_size": SIDE, "model.levels": 3, **(values or {})})


def with_masks(data: DataSet, change: Callable[[list[Array]], list[Array]], *parts: str) -> DataSet:
    """Return a data set with other masks, classes and IGNORED, in these parts, or in all."""
    found: dict[str, MaskedPart] = {}
    for name, part in data.parts.items():
        assert isinstance(part, MaskedPart)
        found[name] = part
        if parts and name not in parts:
            continue
        planes = list(planes_at(data, part, np.arange(len(part))))
        masks = change([IGNORED - each[-1] for each in planes])
        joined = [
            np.concatenate([each[:-1], (IGNORED - mask)[None]])
            for each, mask in zip(planes, masks, strict=True)
        ]
        values = np.concatenate([each.ravel() for each in joined]).astype(np.uint8)
        found[name] = replace(part, values=values)
    return replace(data, train=found["train"], validation=found["validation"], test=found["test"])


def moved(down: int, right: int) -> Callable[[list[Array]], list[Array]]:
    return lambda masks: [np.roll(each, (down, right), (0, 1)) for each in masks]


def swapped(masks: list[Array]) -> list[Array]:
    """Give each image the mask of another one of its size."""
    found = list(masks)
    for shape in {each.shape for each in masks}:
        alike = [number for number, each in enumerate(masks) if each.shape == shape]
        for number, other in zip(alike, alike[3:] + alike[:3], strict=True):
            found[number] = masks[other]
    return found


def without(label: int) -> Callable[[list[Array]], list[Array]]:
    return lambda masks: [np.where(each == label, 0, each) for each in masks]


def ignored(masks: list[Array]) -> list[Array]:
    return [np.full_like(each, IGNORED) for each in masks]


def data_of(recipe: Recipe) -> DataSet:
    return mask_data(recipe)
