"""Draws the weights of a new network."""

from __future__ import annotations

import math
from typing import Literal, assert_never

import torch
from torch import Tensor, nn

from trainable.errors import ModelError
from trainable.models.groups import head_parameters, heads_of
from trainable.models.layers import NORMALISATIONS
from trainable.models.libraries import title_of, torchvision_branches
from trainable.models.small_networks import BasicBlock
from trainable.recipe import models as specs

WEIGHTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


@torch.no_grad()
def initialise(model: nn.Module, kind: Literal["default", "kaiming", "xavier", "orthogonal"]) -> None:
    """Draw convolutions' and linear layers' weights again from torch's global generator; biases become 0.

    Kaiming: normal of variance 2 / fan out (arXiv 1502.01852, section 2.2, backward case); the head, which no
    ReLU follows, of 1 / fan in, so that logits begin small. Xavier: uniform of variance 2 / (fan in + fan
    out) (Glorot and Bengio 2010, equation 16). Orthogonal: orthonormal rows or columns, whichever are fewer,
    of each weight as a matrix [outputs, inputs] (arXiv 1312.6120). A fan counts what one unit is connected
    to: a group of a grouped convolution. Normalisations scale by 1 and shift by 0, except scales that the
    network's library begins at zero: `begin_as_identity` decides on them. `default` does nothing.
    """
    if kind == "default":
        return
    heads = {model.get_submodule(name) for name in heads_of(model)}
    for module in model.modules():
        if isinstance(module, WEIGHTED):
            _draw(module, kind, is_head=module in heads)
            _fill(module.bias, 0.0)
        elif isinstance(module, NORMALISATIONS):
            scale, shift = getattr(module, "weight", None), getattr(module, "bias", None)
            if scale is not None and scale.any():
                _fill(scale, 1.0)
            _fill(shift, 0.0)


@torch.no_grad()
def draw_new_head(model: nn.Module) -> None:
    """Draw the head, or heads, beside pretrained weights from torch's global generator, as torch draws any
    layer: uniform within 1 / sqrt(fan in), so that logits begin near 0.

    The EfficientNets of timm and torchvision draw theirs within 1 / sqrt(classes), 11 times as wide for 10
    classes. The gradient of such logits spoils the body in its first steps: 9 to 15 points of accuracy
    (docs/decisions/0026).
    """
    heads = head_parameters(model)
    for name, module in model.named_modules():
        if isinstance(module, WEIGHTED) and f"{name}.weight" in heads:
            module.reset_parameters()


@torch.no_grad()
def begin_as_identity(model: nn.Module, spec: specs.Model) -> None:
    """Set the last scale of each residual block to 0 or 1, as `spec.zero_init_residual` says;
    None changes nothing.

    With 0 each block begins as its shortcut (Goyal et al., arXiv 1706.02677, section 5.1). Raises ModelError
    if 0 is asked for and no residual block ends in a normalisation.
    """
    if spec.zero_init_residual is None:
        return
    scales = residual_scales(model, spec)
    if spec.zero_init_residual and not scales:
        raise ModelError(
            f"model.zero_init_residual: {title_of(spec)} has no residual blocks that "
            "end in a normalisation; resnet_small, torchvision's resnets and timm's resnets have, also below "
            "the decoder of a network for segmentation"
        )
    for scale in scales:
        _fill(scale, 0.0 if spec.zero_init_residual else 1.0)


def residual_scales(model: nn.Module, spec: specs.Model) -> list[nn.Parameter]:
    """Return the scale of the last normalisation of each residual block, in order of definition."""
    match spec:
        case specs.ResNetSmall():
            return [each.second_norm.weight for each in model.modules() if isinstance(each, BasicBlock)]
        case specs.TorchvisionModel():
            return [norm.weight for _, norm in torchvision_branches(model)]
        case specs.TimmModel() | specs.SmpModel():
            return [scale for block in model.modules() for scale in _scales_of_timm(block)]
        case specs.UNetSmall() | specs.OwnModel():
            return []
        case _:
            assert_never(spec)


def _scales_of_timm(block: nn.Module) -> list[nn.Parameter]:
    """Return the scales that `zero_init_last`, which timm's residual blocks have, makes zero."""
    zero_last = getattr(block, "zero_init_last", None)
    if zero_last is None:
        return []
    before = {name: each.detach().clone() for name, each in block.named_parameters()}
    scales = [each for each in block.parameters() if each.ndim == 1]
    with torch.no_grad():
        for scale in scales:
            scale.fill_(1.0)
        zero_last()
        zeroed = [scale for scale in scales if not scale.any()]
        for name, each in block.named_parameters():
            each.copy_(before[name])
    return zeroed


def _draw(
    layer: nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear,
    kind: Literal["kaiming", "xavier", "orthogonal"],
    *,
    is_head: bool,
) -> None:
    fan_in, fan_out = _fans(layer)
    match kind:
        case "kaiming":
            variance = 1.0 / fan_in if is_head else 2.0 / fan_out
            nn.init.normal_(layer.weight, 0.0, math.sqrt(variance))
        case "xavier":
            bound = math.sqrt(6.0 / (fan_in + fan_out))
            nn.init.uniform_(layer.weight, -bound, bound)
        case "orthogonal":
            nn.init.orthogonal_(layer.weight)
        case _:
            assert_never(kind)


def _fans(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear) -> tuple[float, float]:
    """Return how many numbers one output is made of, and how many one input goes into (at stride 1)."""
    window = layer.weight[0, 0].numel()
    groups = 1 if isinstance(layer, nn.Linear) else layer.groups
    return layer.weight.shape[1] * window, layer.weight.shape[0] * window / groups


def _fill(parameter: Tensor | None, value: float) -> None:
    if parameter is not None:
        nn.init.constant_(parameter, value)
