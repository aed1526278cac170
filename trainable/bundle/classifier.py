"""Joins a trained network with all that happens to an image before and after it, as one module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from trainable.bundle.resizing import squared
from trainable.data import DataInfo
from trainable.data.decode import Form
from trainable.data.loading import statistics_of
from trainable.recipe import Recipe
from trainable.training.evaluate import View, make_views


@final
class Classifier(nn.Module):
    """Turns images as they are stored into probabilities: uint8 [N, H, W, C] -> float32 [N, classes].

    H and W are of any size, C is 1 (grey) or 3 (RGB). Images are made square, normalised and shown to the
    network in every view of `evaluation.flip` and `evaluation.scales`; probabilities are the mean over views.
    """

    def __init__(
        self,
        network: nn.Module,
        form: Form,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        views: Sequence[View],
    ) -> None:
        super().__init__()
        self.network, self.form, self.views = network, form, tuple(views)
        self.mean: Tensor
        self.std: Tensor
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values).mul(255.0).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        stored = images.permute(0, 3, 1, 2).to(torch.float32)
        pixels = squared(stored, self.form.side, self.form.resize, self.form.interpolation)
        shown = (pixels - self.mean) / self.std
        sizes = dict.fromkeys(view.size for view in self.views)
        seen = torch.cat([self._seen_at(size, shown) for size in sizes])
        return seen.view(len(self.views), images.shape[0], -1).mean(0)  # len() would fix it

    def _seen_at(self, size: int | None, shown: Tensor) -> Tensor:
        """Return the probabilities of all views of one size, one view after the other: an exported graph has
        the network once for each size."""
        alike = [view.of(shown) for view in self.views if view.size == size]
        logits: Tensor = self.network(torch.cat(alike))
        return torch.softmax(logits, 1)


def make_classifier(network: nn.Module, recipe: Recipe, info: DataInfo) -> Classifier:
    """Return a network with the preprocessing and the views of its recipe around it, in fp32, ready to
    answer.

    The recipe is that of a run (`Run.recipe`), in which no field of `data` is open. The network itself is
    used, not a copy.
    """
    mean, std = statistics_of(recipe.data, info)
    form = Form(info.channels, info.image_size, recipe.evaluation.resize, info.interpolation)
    views = make_views(recipe.evaluation, info.image_size)
    return Classifier(network.float(), form, mean=mean, std=std, views=views).eval().requires_grad_(False)
