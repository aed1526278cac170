"""Makes the network of a recipe for the images of a data set, and prepares it for training."""

from __future__ import annotations

import torch
from torch import nn

from trainable.data.info import DataInfo
from trainable.models.checkpointing import checkpoint_blocks
from trainable.models.make import make_model
from trainable.models.own import BuildModel, name_of
from trainable.models.sync_norm import with_sync_norm
from trainable.ranks import Ranks
from trainable.recipe import Recipe
from trainable.recipe.models import Model, OwnModel


def make_network(
    spec: Model, info: DataInfo, *, build: BuildModel | None = None, download: bool = False
) -> nn.Module:
    """Return what `make_model` makes for these images: their classes, channels and size."""
    return make_model(
        spec,
        classes=len(info.classes),
        channels=info.channels,
        image_size=info.image_size,
        build=build,
        download=download,
        task=info.task,
    )


def given_or_made(
    model: nn.Module | BuildModel | None, spec: Model, info: DataInfo, *, download: bool = False
) -> nn.Module:
    """Return the network of a run: one that is given, or else what the recipe or a given function makes.

    A function given with a recipe of another network takes its place, and receives no arguments of a recipe.
    """
    if isinstance(model, nn.Module):
        return model
    if model is not None and not isinstance(spec, OwnModel):
        spec = OwnModel(name=name_of(model))
    return make_network(spec, info, build=model, download=download)


def stands_alone(model: nn.Module | BuildModel | None, spec: Model) -> bool:
    """Return whether a given network takes the place of the recipe's, its weights included."""
    return model is not None and (isinstance(model, nn.Module) or not isinstance(spec, OwnModel))


def layout_of(recipe: Recipe) -> torch.memory_format:
    """Return the memory format of a run's network and images."""
    return torch.channels_last if recipe.precision.channels_last else torch.preserve_format


def with_loop_layers(model: nn.Module, recipe: Recipe, ranks: Ranks) -> nn.Module:
    """Change what the loop asks of a network's layers: synchronised norms, recomputed blocks."""
    if recipe.loop.sync_norm:
        model = with_sync_norm(model, ranks)
    if recipe.loop.checkpoint_activations:
        checkpoint_blocks(model)
    return model


def placed(model: nn.Module, recipe: Recipe, ranks: Ranks, device: torch.device) -> nn.Module:
    """Move a network to device and layout, with rank 0's weights."""
    moved: nn.Module = model.to(device, memory_format=layout_of(recipe))  # type: ignore[call-overload]
    if ranks.world > 1:
        ranks.copy_from_first([each.detach() for each in moved.state_dict().values()])
    return moved
