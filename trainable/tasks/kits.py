"""Which kit answers for a recipe's task, and what every run asks it for."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

import torch

from trainable.data import DataSet
from trainable.data.loading import Loader, check_form
from trainable.data.measure import DeviceKind
from trainable.recipe import Recipe
from trainable.recipe.tasks import AnyTask, Classification, Segmentation
from trainable.tasks.classification.kit import ClassificationKit
from trainable.tasks.kit import Kit
from trainable.tasks.segmentation.kit import SegmentationKit
from trainable.training.pixels import as_weights_know


def kit_of(task: AnyTask) -> Kit:
    match task:
        case Classification():
            return ClassificationKit()
        case Segmentation():
            return SegmentationKit(task)
        case _:
            assert_never(task)


def kind_of(device: torch.device) -> DeviceKind:
    return "cuda" if device.type == "cuda" else "cpu"


def load_for(
    recipe: Recipe, device: torch.device, *, own_model: bool = False, download: bool = False
) -> DataSet:
    """Load the images of a recipe for a run on a device, made square as its evaluation says, by the filter
    and at the size of its weights where it leaves these open. Raises DataError, ModelError."""
    kind = kind_of(device)
    asked = as_weights_know(recipe, kind, own_model=own_model, download=download)
    data = kit_of(asked.task).load(asked, device_kind=kind, download=download, most_bytes=None)
    return replace(data, crops=recipe.augmentation.crop.kind == "resized")


def make_loader(data: DataSet, recipe: Recipe, device: torch.device, gpu_share: float = 1.0) -> Loader:
    """Return the loader of a data set for a recipe; `gpu_share`, in (0, 1], is the run's share of the GPU.

    Images that are decoded already, in memory or in this machine's cache, are taken from there; others are
    read from their files, and are the same. Raises DataError if the set was loaded for another form.
    """
    if not 0.0 < gpu_share <= 1.0:
        raise ValueError(f"gpu_share must be above 0 and at most 1, got {gpu_share}")
    check_form(data, recipe)
    return kit_of(recipe.task).loader(data, recipe, device, gpu_share)
