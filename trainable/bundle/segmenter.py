"""Joins a trained network with what happens to a window of an image before and after it, as one module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainable.data import DataInfo
from trainable.data.loading import statistics_of
from trainable.recipe import Recipe
from trainable.recipe.tasks import Segmentation
from trainable.training.evaluate import make_views


@final
class Segmenter(nn.Module):
    """Turns square windows of images into logits of each pixel: float32 [N, side, side, C] -> float32 [N,
    classes, side, side].

    Levels are in [0, 255]; C is 1 (grey) or 3 (RGB). `whole_images` cuts images of any size into windows, and
    joins their logits.
    """

    def __init__(self, network: nn.Module, *, side: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.network, self.side, self.channels = network, side, len(mean)
        self.mean: Tensor
        self.std: Tensor
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values).mul(255.0).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network((images.permute(0, 3, 1, 2) - self.mean) / self.std)
        if logits.shape[-2:] == (self.side, self.side):
            return logits
        return functional.interpolate(logits, size=(self.side, self.side), mode="bilinear")


def make_segmenter(network: nn.Module, recipe: Recipe, info: DataInfo) -> Segmenter:
    """Return a network with the preprocessing of its recipe around it, in fp32, ready to answer.

    The recipe is that of a run (`Run.recipe`), in which no field of `data` is open. The network itself is
    used, not a copy.
    """
    mean, std = statistics_of(recipe.data, info)
    made = Segmenter(network.float(), side=info.image_size, mean=mean, std=std)
    return made.eval().requires_grad_(False)


def about_masks(recipe: Recipe, info: DataInfo) -> dict[str, Any]:
    """Return what `predict.py` must know of a model for masks: its classes, the value of each in the file of
    a mask, and how images are cut into windows and seen."""
    assert isinstance(recipe.task, Segmentation), "masks are of a segmentation"
    side = info.image_size
    views = make_views(recipe.evaluation, side)
    return {
        "classes": list(info.classes),
        "values": list(info.mask_values or range(len(info.classes))),
        "channels": info.channels,
        "side": side,
        "overlap": recipe.task.overlap,
        "views": [[1.0 if view.size is None else view.size / side, view.mirrored] for view in views],
    }
