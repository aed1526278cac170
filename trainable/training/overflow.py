"""Lets optimizers without fused kernels skip a step that overflowed, without reading whether it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn, optim


def skip_on_device(optimizer: optim.Optimizer) -> None:
    """Make an optimizer do itself what a GradScaler asks: nothing, if the gradients are not finite.

    Otherwise the scaler reads one number from the device before every step. The optimizer must begin its
    state at zeros, and use no count of steps: it takes the step with gradients of zero, and what it has
    changed is then chosen on the device from before and after. That costs a copy of weights and state, for
    the time of a step, and only if a scaler is enabled.
    """
    optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]  # read by torch.amp.GradScaler
    kept: dict[Tensor, Tensor] = {}

    def keep(stepping: optim.Optimizer, *_: Any) -> None:
        overflowed = _overflowed(stepping)
        if overflowed is not None:
            changing = _changing(stepping)
            kept.update(zip(changing, _copies(changing), strict=True))
            for each in _weights(stepping):
                if each.grad is not None:
                    each.grad.masked_fill_(overflowed, 0.0)  # not times zero: that leaves nan

    def choose(stepping: optim.Optimizer, *_: Any) -> None:
        overflowed = _overflowed(stepping)
        if overflowed is not None:
            _restore(_changing(stepping), kept, overflowed)
            kept.clear()

    optimizer.register_step_pre_hook(keep)
    optimizer.register_step_post_hook(choose)


def _overflowed(optimizer: optim.Optimizer) -> Tensor | None:
    """Return whether the gradients overflowed, on their device, or None if no scaler takes the step."""
    found: Tensor | None = getattr(optimizer, "found_inf", None)
    return None if found is None else found.reshape(()).bool()


@torch.no_grad()
def _restore(after: list[Tensor], before: Mapping[Tensor, Tensor], overflowed: Tensor) -> None:
    """Set tensors to what they were if the step overflowed; those that the step has made become zeros.

    All numbers are finite, so one factor is 1, the other 0, and what is kept does not change by a bit.
    """
    torch._foreach_mul_(after, (~overflowed).to(torch.float32))
    known = [each for each in after if each in before]
    old = [before[each] for each in known]
    torch._foreach_mul_(old, overflowed.to(torch.float32))
    torch._foreach_add_(known, old)


@torch.no_grad()
def _copies(tensors: list[Tensor]) -> list[Tensor]:
    copies = [torch.empty_like(each) for each in tensors]
    torch._foreach_copy_(copies, tensors)
    return copies


def _weights(optimizer: optim.Optimizer) -> list[nn.Parameter]:
    """Return the weights that have gradients."""
    return [each for group in optimizer.param_groups for each in group["params"] if each.grad is not None]


def _changing(optimizer: optim.Optimizer) -> list[Tensor]:
    """Return the weights that have gradients, and their state on the same device."""
    return [tensor for each in _weights(optimizer) for tensor in (each, *_state(optimizer, each))]


def _state(optimizer: optim.Optimizer, weight: nn.Parameter) -> list[Tensor]:
    values = optimizer.state.get(weight, {}).values()
    return [each for each in values if isinstance(each, Tensor) and each.shape == weight.shape]
