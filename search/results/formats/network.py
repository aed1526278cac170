"""The network of a recipe, built to see what another program would make of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from trainable.data import DataInfo
from trainable.models.groups import head_of, layer_groups, rate_factors
from trainable.recipe import models
from trainable.training.network import make_network


@dataclass(frozen=True)
class Network:
    """A network without its weights, and what formats ask of it; one of a person's own is None."""

    model: nn.Module | None = None
    head: str = ""
    layers: int = 1
    rates: Mapping[str, float] = field(default_factory=dict)  # factors of the rate, by a parameter's name
    in_timm: bool = False

    @property
    def head_spread(self) -> float | None:
        """The spread of a head drawn within 1 / sqrt(inputs), over that of the library's own."""
        layer = self.model.get_submodule(self.head) if self.model is not None else None
        if not isinstance(layer, nn.Linear):
            return None
        drawn = layer.weight.std().item()
        return 1.0 / math.sqrt(3.0 * layer.in_features) / drawn if drawn else None


def build(spec: models.Model, info: DataInfo) -> Network:
    """Return the network of a recipe, drawn as its library draws it."""
    import timm

    if isinstance(spec, models.OwnModel):
        return Network()
    model = make_network(spec.model_copy(update={"weights": None, "initialisation": "default"}), info)
    in_timm = isinstance(spec, models.TimmModel) or (
        isinstance(spec, models.TorchvisionModel) and timm.is_model(spec.name)
    )
    return Network(
        model, head_of(model), len(layer_groups(model)), rate_factors(spec.layer_rates, model), in_timm
    )
