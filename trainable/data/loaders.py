"""Chooses the loader of a data set for a recipe."""

from __future__ import annotations

import torch

from trainable.data import DataSet
from trainable.data.loading import ArrayLoader, FileLoader, Loader, train_side
from trainable.data.masks.loading import make_mask_loader
from trainable.errors import DataError
from trainable.recipe import Recipe
from trainable.recipe.tasks import Segmentation


def make_loader(data: DataSet, recipe: Recipe, device: torch.device, gpu_share: float = 1.0) -> Loader:
    """Return the loader of a data set for a recipe; `gpu_share`, in (0, 1], is the run's share of the GPU.

    Images that are decoded already, in memory or in this machine's cache, are taken from there; others are
    read from their files, and are the same. Raises DataError if the set was loaded for another form.
    """
    if not 0.0 < gpu_share <= 1.0:
        raise ValueError(f"gpu_share must be above 0 and at most 1, got {gpu_share}")
    _check_agree(data, recipe)
    if isinstance(recipe.task, Segmentation):
        return make_mask_loader(data, recipe, device, gpu_share)
    views = data.decoded_views()
    if {("train", train_side(data, recipe)), ("validation", data.info.image_size)} <= views.keys():
        return ArrayLoader(data, recipe, device, gpu_share, views)
    return FileLoader(data, recipe, device)


def _check_agree(data: DataSet, recipe: Recipe) -> None:
    """Raises DataError if the images were made for another form than the recipe's,
    which would train on wrong ones."""
    spec = recipe.data
    asked = (spec.channels, spec.image_size, spec.interpolation, recipe.evaluation.resize)
    loaded_form = (data.info.channels, data.info.image_size, data.info.interpolation, data.resize)
    names = ("data.channels", "data.image_size", "data.interpolation", "evaluation.resize")
    for name, wanted, loaded in zip(names, asked, loaded_form, strict=True):
        if wanted is not None and wanted != loaded:
            raise DataError(
                f"{name}: the recipe asks for {wanted}, but the data set was loaded with {loaded}"
            )
