"""Says whether a network without some channels computes what the whole one does if these count nothing.

A layer that takes a channel with weights of 0 does not see it. So the two networks must answer alike,
whatever lies between the layers; where they do not, channels were cut that do not belong together.
Normalisations over channels are left out of both: with fewer channels they have other statistics.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainable.models.layers import BATCH_NORMS, NORMALISATIONS
from trainable.shrinking.dependencies import Cut, tensors_of

TOLERANCE = 1e-6
"""The largest difference, as a share of the largest answer, in float64; what is wrong differs by more than a
hundredth."""
SEED = 0


@torch.no_grad()
def differs(whole: nn.Module, narrow: nn.Module, cuts: Sequence[Cut], shape: tuple[int, int, int]) -> bool:
    """Return whether the answers to two images of noise [C, H, W] differ by more than TOLERANCE."""
    noise = torch.randn(2, *shape, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)
    masked = _without_channel_norms(whole)
    for cut in cuts:
        if cut.end.side == "inputs":
            _blind(masked.get_submodule(cut.end.layer), cut.channels)
    expected, got = (_answer(each, noise) for each in (masked, _without_channel_norms(narrow)))
    if expected.shape != got.shape:
        return True
    return not bool((expected - got).abs().max() <= TOLERANCE * expected.abs().max())


def _answer(network: nn.Module, images: Tensor) -> Tensor:
    return torch.cat([each.flatten() for each in tensors_of(network(images))])


def _without_channel_norms(network: nn.Module) -> nn.Module:
    twin = copy.deepcopy(network).double().eval()
    for layer in twin.modules():
        if isinstance(layer, NORMALISATIONS) and not isinstance(layer, BATCH_NORMS):
            layer.register_forward_hook(lambda _, inputs, output: inputs[0])
    return twin


def _blind(layer: nn.Module, channels: Sequence[int]) -> None:
    """Set the weights to 0 by which a layer takes some channels."""
    weight = layer.weight
    assert isinstance(weight, Tensor)
    if isinstance(layer, nn.modules.conv._ConvTransposeNd):
        weight[list(channels)] = 0.0
    elif isinstance(layer, nn.modules.conv._ConvNd) and layer.groups > 1:
        taken, given = layer.in_channels // layer.groups, layer.out_channels // layer.groups
        for channel in channels:
            group = channel // taken
            weight[group * given : (group + 1) * given, channel % taken] = 0.0
    else:
        weight[:, list(channels)] = 0.0
