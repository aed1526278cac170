"""Computes what the body of a network makes of images of a data set's parts, as they are shown in scoring."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from trainable.array_types import Integers
from trainable.data import DataInfo, Split
from trainable.data.loading import Loader
from trainable.models.groups import HeadCut, cut_before_head
from trainable.recipe import Recipe
from trainable.recipe.network_cost import Format
from trainable.training import precision
from trainable.training.evaluate import full_precision

BATCH = 64

FeatureArray = NDArray[np.float32]
PartFeatures = tuple[FeatureArray, Integers]  # features [n, F] and labels [n]


def part_features(
    network: nn.Module, loader: Loader, recipe: Recipe, info: DataInfo, chosen: Mapping[Split, Integers]
) -> dict[Split, PartFeatures] | None:
    """Return features and labels of the images at the chosen positions of each part; None for a network that
    cannot be cut before its head. The network is left on the loader's device, in evaluation mode; the loader
    is closed."""
    network = network.to(loader.device).eval()
    try:
        shape = (2, info.channels, info.image_size, info.image_size)
        cut = cut_before_head(network, torch.zeros(shape, device=loader.device))
        if cut is None:
            return None
        number_format = precision.resolve(recipe.precision, loader.device)
        return {part: _computed(cut, loader, part, at, number_format) for part, at in chosen.items()}
    finally:
        loader.close()


@torch.inference_mode()
def _computed(
    cut: HeadCut, loader: Loader, part: Split, chosen: Integers, number_format: Format
) -> PartFeatures:
    features, labels = [], []
    autocast = precision.autocast(number_format, loader.device)
    for images, truth in loader.evaluate(part, chosen, BATCH):
        with autocast:
            features.append(full_precision(cut.features(images)).flatten(1).cpu())
        labels.append(truth.cpu())
    return torch.cat(features).numpy(), torch.cat(labels).numpy()
