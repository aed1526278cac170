"""Makes the network of a recipe for the images of a data set."""

from __future__ import annotations

from torch import nn

from trainable.data import DataInfo
from trainable.models.make import make_model
from trainable.models.own import BuildModel, name_of
from trainable.recipe.models import Model, OwnModel


def make_network(
    spec: Model, info: DataInfo, *, build: BuildModel | None = None, download: bool = False
) -> nn.Module:
    """Returns what `make_model` makes for these images: their classes, channels and size."""
    return make_model(
        spec,
        classes=len(info.classes),
        channels=info.channels,
        image_size=info.image_size,
        build=build,
        download=download,
    )


def given_or_made(
    model: nn.Module | BuildModel | None, spec: Model, info: DataInfo, *, download: bool = False
) -> nn.Module:
    """Returns the network of a run: one that is given, or else what the recipe or a given function makes.

    A function given with a recipe of another network takes its place, and receives no arguments of a recipe.
    """
    if isinstance(model, nn.Module):
        return model
    if model is not None and not isinstance(spec, OwnModel):
        spec = OwnModel(name=name_of(model))
    return make_network(spec, info, build=model, download=download)
