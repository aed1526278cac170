"""Builds the network of a recipe, to say what a format's own program would make of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from search.results.formats.winner import Winner
from trainable.models.groups import head_of, layer_groups, rate_factors
from trainable.recipe import models
from trainable.training.network import make_network


@dataclass(frozen=True)
class Network:
    """Holds a network without its weights, and what formats ask of it; a network of Python's own is None."""

    model: nn.Module | None = None
    head: str = ""
    layers: int = 1
    rates: Mapping[str, float] = field(default_factory=dict)
    """These are the factors of the rate, by a parameter's name."""
    in_timm: bool = False

    @property
    def head_spread(self) -> float | None:
        """The spread of a head drawn within 1 / sqrt(inputs), over that of the library's own."""
        layer = self.model.get_submodule(self.head) if self.model is not None else None
        if not isinstance(layer, nn.Linear):
            return None
        drawn = layer.weight.std().item()
        return 1.0 / math.sqrt(3.0 * layer.in_features) / drawn if drawn else None

    def differing(
        self,
        names: Mapping[Any, str],
        key: str,
        ours: Sequence[dict[str, Any]],
        theirs: Sequence[dict[str, Any]],
    ) -> list[str]:
        """Return the parameters whose groups differ in what `key` names, by their names."""
        here, there = (
            {each: group[key] for group in groups for each in group["params"]} for groups in (ours, theirs)
        )
        return [
            name
            for each, name in names.items()
            if not math.isclose(here[each], there.get(each, 0.0), rel_tol=1e-6)
        ]


def build(winner: Winner) -> Network:
    """Return the network of a recipe, drawn as its library draws it."""
    import timm

    spec = winner.recipe.model
    if isinstance(spec, models.OwnModel):
        return Network()
    plain = spec.model_copy(update={"weights": None, "initialisation": "default"})
    model = make_network(plain, winner.info)
    known = isinstance(spec, models.TimmModel) or (
        isinstance(spec, models.TorchvisionModel) and timm.is_model(spec.name)
    )
    return Network(
        model, head_of(model), len(layer_groups(model)), rate_factors(spec.layer_rates, model), in_timm=known
    )
