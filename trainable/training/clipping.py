"""Clips gradients: all together by their norm, or each unit's to a share of its weights in length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_

from trainable.models.groups import head_parameters
from trainable.recipe.training import AdaptiveClipping, Clipping, NoClipping, NormClipping


def clip(
    spec: Clipping,
    parameters: Sequence[nn.Parameter],
    below_head: Sequence[nn.Parameter],
    norm: Tensor | None,
) -> None:
    """Clips the gradients of `parameters` by their norm, if it was measured, or those below the head."""
    match spec:
        case NoClipping():
            pass
        case NormClipping(max_norm=longest):
            if norm is not None:
                clip_grads_with_norm_(parameters, longest, norm)
        case AdaptiveClipping(factor=factor):
            clip_adaptively(below_head, factor)
        case _:
            assert_never(spec)


@torch.no_grad()
def clip_adaptively(parameters: Sequence[nn.Parameter], factor: float, eps: float = 1e-3) -> None:
    """Shrink the gradients in place so that no unit's is longer than `factor` times its weights.

    A unit is a row of a parameter with rows (an output channel, an output of a linear layer), and otherwise
    the whole parameter. Weights shorter than `eps` count as that long, or zeros could never move. The caller
    leaves the final linear layer out. Brock et al., arXiv 2102.06171, section 4.1; `factor` is their lambda.

    It waits for no device: the few numbers that decide stay where the gradients are.
    """
    moving = [each for each in parameters if each.grad is not None]
    gradients = [each.grad for each in moving if each.grad is not None]
    if not gradients:
        return
    lengths = [_unit_norms(each) for each in gradients]
    found = torch.cat(lengths)
    allowed = torch.cat([_unit_norms(each) for each in moving]).clamp_(min=eps).mul_(factor)
    scales = torch.where(found > allowed, allowed / found, 1.0)
    for gradient, scale in zip(gradients, scales.split([len(each) for each in lengths]), strict=True):
        shape = [len(scale), *[1] * gradient.ndim][: gradient.ndim]  # as many dimensions as the gradient
        gradient.mul_(scale.view(shape))


def _unit_norms(values: Tensor) -> Tensor:
    """Return the Euclidean length of each unit, [units]."""
    dimensions = tuple(range(1, values.ndim)) or None
    norms: Tensor = torch.linalg.vector_norm(values, dim=dimensions)
    return norms.view(-1)


def below_head(model: nn.Module) -> list[nn.Parameter]:
    """Return what adaptive clipping bounds: all but the last layer (arXiv 2102.06171, section 4.1)."""
    head = head_parameters(model)
    return [each for name, each in model.named_parameters() if each.requires_grad and name not in head]
