"""Computes an exponential moving average of a model's weights."""

from __future__ import annotations

import copy
import math
from typing import Any, assert_never

import torch
from torch import nn

from trainable.recipe.training import Averaging, ExponentialAveraging, NoAveraging


class Ema:
    """A second copy of a model whose parameters and running statistics trail the trained ones.

    After update t = 0, 1, ... average = d_t * average + (1 - d_t) * weights, where the decay warms up as d_t
    = clip(1 - (1 + t)^(-2/3), 0, decay), so that the first update copies, and the first weights do not
    dominate short runs (timm's ModelEmaV3 with warm-up: gamma 1, power 2/3). Integer buffers are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay
        self.updates = 0
        pairs = list(zip(_tensors(self.model), _tensors(model), strict=True))
        self._averages = [average for average, _ in pairs if average.is_floating_point()]
        self._sources = [source for average, source in pairs if average.is_floating_point()]
        self._copies = [average for average, _ in pairs if not average.is_floating_point()]
        self._counters = [source for average, source in pairs if not average.is_floating_point()]

    @torch.no_grad()
    def update(self) -> None:
        """Add the current weights to the average; call it once after every optimizer step."""
        weight = 1.0 - decay_at(self.updates, self.decay)
        torch._foreach_lerp_(self._averages, self._sources, weight)
        if self._counters:  # one kernel for all: a network counts the batches in each BatchNorm
            torch._foreach_copy_(self._copies, self._counters)
        self.updates += 1

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.updates = state["updates"]


def decay_at(update: int, decay: float) -> float:
    """Return the decay of update `update`, counting from 0."""
    return min(decay, 1.0 - math.pow(1.0 + update, -2.0 / 3.0))


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return [*(parameter.detach() for parameter in model.parameters()), *model.buffers()]


def make_average(spec: Averaging, model: nn.Module) -> Ema | None:
    """Return the average of a model's weights that the recipe asks for, or None."""
    match spec:
        case NoAveraging():
            return None
        case ExponentialAveraging(decay=decay):
            return Ema(model, decay)
        case _:
            assert_never(spec)
