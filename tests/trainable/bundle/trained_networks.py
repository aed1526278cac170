"""Makes networks that a bundle can be written of without training: random weights answer, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from trainable.bundle.trained import Trained, trained
from trainable.recipe import Recipe
from trainable.training.network import make_network

DIGITS: dict[str, Any] = {"model.width": 8, "precision.kind": "fp32"}


def untrained(values: dict[str, Any] | None = None, build: Callable[..., nn.Module] | None = None) -> Trained:
    """Return the network of a recipe with weights that are drawn with seed 0; `values` by dotted path."""
    known = trained(Recipe().with_values(values or DIGITS), {}, epochs=1, model=build)
    torch.manual_seed(0)
    network = make_network(known.recipe.model, known.data.info, build=build)
    _spread(network)
    return Trained(known.recipe, known.data, network.state_dict(), 1, build)


def _spread(network: nn.Module) -> None:
    """Give BatchNorm statistics that are not its first ones, and answers that are far apart."""
    for name, each in network.named_buffers():
        if name.endswith("running_mean"):
            nn.init.normal_(each, std=0.1)
        elif name.endswith("running_var"):
            nn.init.uniform_(each, 0.5, 2.0)
    *_, head = (each for each in network.modules() if isinstance(each, nn.Linear))
    nn.init.normal_(head.weight)
