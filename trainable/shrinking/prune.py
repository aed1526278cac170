"""Cuts the channels of a network that matter least, down to a share of its operations."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainable.errors import ModelError, UserError, first_line
from trainable.models.layers import BATCH_NORMS, NORMALISATIONS
from trainable.models.widths import Widths, make_narrow, widths_between
from trainable.probes.network_cost import Flops, count_flops
from trainable.shrinking.choice import choose
from trainable.shrinking.dependencies import ChannelCut, Dependencies, tensors_of

STEP = 8  # at most so many channels are cut together; docs/decisions/0045 has the measurements
NEAR = 0.005  # so near is the share that is counted in the cut network to the computed one
TOLERANCE = 1e-6  # of answers in float64, as a share of the largest; a wrong cut makes more than a hundredth
SEED = 0  # of the noise that is answered


@dataclass(frozen=True, eq=False)
class Pruned:
    """A narrower network on the CPU, in what it is narrower, and an image's operations before and after."""

    network: nn.Module
    widths: Widths
    before: Flops
    after: Flops

    @property
    def share(self) -> float:
        """The share of the operations that is left."""
        return self.after.total / self.before.total


def prune(
    network: nn.Module, shape: tuple[int, int, int], share: float, *, title: str = "the network"
) -> Pruned:
    """Return a copy of a network with at most a share, in (0, 1), of its operations for an image [C, H, W].

    The channels with the smallest weights are cut, in steps of at most STEP channels. What the network
    returns keeps its channels. Raises ModelError, with the title of the network, where it cannot be traced or
    has not enough channels to cut, and where it would not compute what the whole network does if the cut
    channels counted nothing.
    """
    if not 0.0 < share < 1.0:
        raise ModelError(f"--flops {share:g}: expected a share of the operations above 0 and below 1")
    whole = copy.deepcopy(network).to("cpu", torch.float32).eval()
    cut_out, narrow = copy.deepcopy(whole), copy.deepcopy(whole)
    before = count_flops(whole, shape)
    with _understood(title):
        promised, cuts = _cut(Dependencies(cut_out, shape, title), share, before)
        widths = widths_between(whole, cut_out)
        make_narrow(narrow, widths)
        narrow.load_state_dict(cut_out.state_dict())
        differ = differs(whole, narrow, cuts, shape)
        found = Pruned(narrow, widths, before, count_flops(narrow, shape))
    if differ or abs(found.share - promised) > NEAR:
        got = f"{found.share:.3f} and {'other' if differ else 'these'} answers"
        raise ModelError(
            f"{title}: cannot be pruned: expected {promised:.3f} of its operations to be left, and the "
            f"answers of a network where the cut channels count nothing, got {got}: what it does to "
            "channels is not understood"
        )
    return found


@contextmanager
def _understood(title: str) -> Iterator[None]:
    """Turn whatever goes wrong in a network whose channels are not understood into a ModelError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # torch-pruning, and a network that was cut wrongly, raise nearly anything
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise ModelError(
            f"{title}: cannot be pruned: what it does to channels is not understood ({reason})"
        ) from error


def _cut(dependencies: Dependencies, share: float, flops: Flops) -> tuple[float, list[ChannelCut]]:
    """Cut channels out of the network of these dependencies, in place; return the share of the operations
    that is left then, and what was cut, counted in the whole network."""
    chosen = choose(dependencies.groups, flops, share, STEP)
    units = [
        group.importance.argsort(kind="stable")[: len(group.importance) - kept].tolist()
        for group, kept in zip(dependencies.groups, chosen.kept, strict=True)
    ]
    pairs = list(zip(dependencies.groups, units, strict=True))
    cuts = [cut for group, each in pairs for cut in dependencies.cuts(group, each)]
    for group, each in pairs:
        dependencies.cut(group, each)
    return chosen.share, cuts


@torch.no_grad()
def differs(
    whole: nn.Module, narrow: nn.Module, cuts: Sequence[ChannelCut], shape: tuple[int, int, int]
) -> bool:
    """Return whether a network without some channels answers otherwise than the whole one would if these
    counted nothing: two images of noise [C, H, W], by more than TOLERANCE.

    A layer that takes a channel with weights of 0 does not see it. So the two networks must answer alike,
    whatever lies between the layers; where they do not, channels were cut that do not belong together.
    Normalisations over channels are left out of both: with fewer channels they have other statistics.
    """
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
