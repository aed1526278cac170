"""Finds which channels of a network belong together: with one of them gone, the others have to go, too.

torch-pruning finds this out by tracing the network (Fang et al., arXiv 2301.12900, section 3), and is
imported here alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainable.errors import ModelError, UserError
from trainable.models.layers import has_attention

UnitImportance = NDArray[np.float64]
Side = Literal["outputs", "inputs"]
MISSING = (
    "pruning needs the package torch-pruning, which is not installed: `pip install 'tunebook[shrink]'`, or "
    "`pip install torch-pruning`"
)
IMAGES = 2  # in training mode BatchNorm needs two to compute statistics


class LayerEnd(NamedTuple):
    """One end of a layer: the channels that it gives, or those that it takes."""

    layer: str
    side: Side


@dataclass(frozen=True)
class ChannelGroup:
    """Channels that can be cut in units: a unit is a channel, or one of each group of a grouped
    convolution, together with everything that depends on it."""

    root: str  # the layer that gives these channels
    units: tuple[tuple[int, ...], ...]  # the channels of the root in each unit
    # The squared L2 norm of the weights of each unit, a mean over its layers, divided by the mean over units
    # (Li et al., arXiv 1608.08710, section 3.1, for a layer; arXiv 2301.12900, section 3.3, for a group). It
    # is torch-pruning's GroupMagnitudeImportance.
    importance: UnitImportance
    shares: Mapping[
        LayerEnd, float
    ]  # of the channels of each end of a layer, this group has so much, in (0, 1]

    def channels(self, units: Sequence[int]) -> list[int]:
        """Return the channels of the root in some units."""
        return [channel for unit in units for channel in self.units[unit]]


class ChannelCut(NamedTuple):
    """The channels that an end of a layer loses, counted in the layer as it is."""

    end: LayerEnd
    channels: list[int]


@final
class Dependencies:
    """The groups of a network's channels, and what cuts some of them out of it, in place.

    Channels that a network returns stay. So do those of which torch-pruning names more than a layer has: it
    counts concatenations wrongly in some networks. Raises ModelError for a network that has attention layers
    or nothing to cut, nearly anything for one that torch-pruning cannot trace, and UserError where it is not
    installed.
    """

    def __init__(self, network: nn.Module, shape: tuple[int, int, int], title: str) -> None:
        pruning = library()
        if has_attention(network):
            raise ModelError(
                f"{title}: expected a convolutional network, got one with attention layers, whose channels "
                "cannot be pruned"
            )
        self._names = {layer: name for name, layer in network.named_modules()}
        self._layers = dict(network.named_modules())
        self._graph = _traced(pruning, network, torch.ones(IMAGES, *shape))
        self._importance = pruning.importance.GroupMagnitudeImportance(p=2)
        self.groups = tuple(self._groups())
        if not self.groups:
            raise ModelError(f"{title}: cannot be pruned: it has no channels beside those that it returns")

    def cuts(self, group: ChannelGroup, units: Sequence[int]) -> list[ChannelCut]:
        """Return what is cut from convolutions and linear layers along with some units of a group."""
        found = self._group_of(group, units)
        return [ChannelCut(end, list(indices)) for end, indices in self._ends(found)]

    def cut(self, group: ChannelGroup, units: Sequence[int]) -> None:
        """Cut some units of a group out of the network."""
        if units:
            self._group_of(group, units).prune()

    def _group_of(self, group: ChannelGroup, units: Sequence[int]) -> Any:
        root = self._layers[group.root]
        handler = self._graph.get_pruner_of_module(root).prune_out_channels
        return self._graph.get_pruning_group(root, handler, group.channels(units))

    def _groups(self) -> Iterator[ChannelGroup]:
        for found in self._graph.get_all_groups():
            root = self._names[found[0].dep.target.module]
            if self._gives_outputs(found) or not self._fits(found):
                continue
            if (importance := self._importance(found)) is None:
                continue
            groups = max([_channel_groups(item.dep.target.module) for item in found])
            size = len(importance) // groups
            units = tuple(tuple(unit + size * each for each in range(groups)) for unit in range(size))
            weights = importance.double().view(groups, size).mean(0).numpy()
            shares = {end: len(indices) / self._length(end) for end, indices in self._ends(found)}
            yield ChannelGroup(root, units, weights, shares)

    def _ends(self, found: Any) -> Iterator[tuple[LayerEnd, Sequence[int]]]:
        """Yield the ends of convolutions and linear layers in a group of torch-pruning's, with channels.

        A depthwise convolution has one end: what it gives is what it takes.
        """
        for dep, indices in found:
            if isinstance(dep.target.module, nn.modules.conv._ConvNd | nn.Linear):
                side: Side = "outputs" if self._graph.is_out_channel_pruning_fn(dep.handler) else "inputs"
                yield LayerEnd(self._names[dep.target.module], side), indices

    def _length(self, end: LayerEnd) -> int:
        layer, direction = self._layers[end.layer], "out" if end.side == "outputs" else "in"
        what = "features" if isinstance(layer, nn.Linear) else "channels"
        length: int = getattr(layer, f"{direction}_{what}")
        return length

    def _gives_outputs(self, found: Any) -> bool:
        return any(item.dep.target.type == self._graph.ops.OPTYPE.OUTPUT for item in found)

    def _fits(self, found: Any) -> bool:
        return all(max(indices) < self._length(end) for end, indices in self._ends(found))


def library() -> Any:
    """Return the module torch_pruning. Raises UserError, with what to do, where it is not installed."""
    try:
        import torch_pruning
    except ImportError:
        raise UserError(MISSING) from None
    return torch_pruning


def _traced(pruning: Any, network: nn.Module, images: Tensor) -> Any:
    """Return torch-pruning's graph of a network, traced in training mode, in which a second head answers
    too. The network's buffers stay as they were."""
    for parameter in network.parameters():
        parameter.requires_grad_(True)  # the graph is that of gradients
    buffers = [(each, each.clone()) for each in network.buffers()]
    try:
        with warnings.catch_warnings(), torch.enable_grad(), torch.random.fork_rng([]):
            warnings.simplefilter("ignore")  # it names parameters outside layers, whose last axis it cuts
            return pruning.DependencyGraph().build_dependency(network, images, forward_fn=_answered)
    finally:
        for each, before in buffers:
            each.copy_(before)
        network.eval()


def _answered(network: nn.Module, images: Tensor) -> list[Tensor]:
    """Return all that a network answers in training mode. Each answer is multiplied by 1, so that no layer
    computes it last, and it is a node of its own in the graph."""
    network.train()
    return [each * 1 for each in tensors_of(network(images))]


def tensors_of(outputs: Any) -> Iterator[Tensor]:
    """Yield the tensors among a network's answers, in their order."""
    if isinstance(outputs, Tensor):
        yield outputs
    elif isinstance(outputs, Mapping):
        yield from tensors_of(list(outputs.values()))
    elif isinstance(outputs, list | tuple):
        for each in outputs:
            yield from tensors_of(each)


def _channel_groups(layer: nn.Module) -> int:
    """Return into how many groups a layer divides its channels, which lose as many each; 1 for a depthwise
    convolution, which loses whole groups."""
    if isinstance(layer, nn.modules.conv._ConvNd):
        depthwise = layer.groups == layer.in_channels == layer.out_channels
        return 1 if depthwise else layer.groups
    return layer.num_groups if isinstance(layer, nn.GroupNorm) else 1
