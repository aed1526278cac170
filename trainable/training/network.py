"""Makes the network of a recipe for the images of a data set."""

from __future__ import annotations

from torch import nn

from trainable.data import DataInfo
from trainable.models.make import make_model
from trainable.recipe.models import Model


def make_network(spec: Model, info: DataInfo, *, download: bool = False) -> nn.Module:
    """Returns what `make_model` makes for these images: their classes, channels and size."""
    return make_model(
        spec,
        classes=len(info.classes),
        channels=info.channels,
        image_size=info.image_size,
        download=download,
    )
