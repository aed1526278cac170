"""Lets optimizers without fused kernels skip a step that overflowed, without reading whether it did."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn, optim


def skip_on_device(optimizer: optim.Optimizer) -> None:
    """Makes an optimizer do itself what a GradScaler asks: nothing, if the gradients are not finite.

    Otherwise the scaler reads one number from the device before every step. The optimizer must begin its
    state at zeros, and use no count of steps: it takes the step, and what it has changed is then chosen on
    the device from before and after. That costs a copy of weights and state, for the time of a step, and only
    if a scaler is enabled.
    """
    optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]  # read by torch.amp.GradScaler
    kept: dict[Tensor, Tensor] = {}

    def keep(stepping: optim.Optimizer, *_: Any) -> None:
        if _overflowed(stepping) is not None:
            kept.update({each: each.detach().clone() for each in _changing(stepping)})

    def choose(stepping: optim.Optimizer, *_: Any) -> None:
        overflowed = _overflowed(stepping)
        if overflowed is not None:
            _undo(_changing(stepping), kept, overflowed)
            kept.clear()

    optimizer.register_step_pre_hook(keep)
    optimizer.register_step_post_hook(choose)


def _overflowed(optimizer: optim.Optimizer) -> Tensor | None:
    """Returns whether the gradients overflowed, on their device, or None if no scaler takes the step."""
    found: Tensor | None = getattr(optimizer, "found_inf", None)
    return None if found is None else found.bool()


@torch.no_grad()
def _undo(tensors: list[Tensor], before: dict[Tensor, Tensor], overflowed: Tensor) -> None:
    for each in tensors:
        if each in before:
            torch.where(overflowed, before[each], each, out=each)
        else:  # this step has made it
            each.masked_fill_(overflowed, 0.0)


def _changing(optimizer: optim.Optimizer) -> list[Tensor]:
    """Returns the weights that have gradients, and their state on the same device."""
    weights = [each for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
    return [tensor for each in weights for tensor in (each, *_state(optimizer, each))]


def _state(optimizer: optim.Optimizer, weight: nn.Parameter) -> list[Tensor]:
    values = optimizer.state.get(weight, {}).values()
    return [each for each in values if isinstance(each, Tensor) and each.shape == weight.shape]
