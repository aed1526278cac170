"""Counts the floating-point operations of a network, by torch's own counter: those of its convolutions and
matrix products, a multiplication and an addition each."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

OF_ALL = "Global"  # torch's counter calls the sum over everything so


@dataclass(frozen=True)
class Flops:
    """The operations that one image takes."""

    total: int
    layers: dict[str, int]  # by the name of each layer without layers of its own


def count_flops(network: nn.Module, shape: tuple[int, int, int]) -> Flops:
    """Return the operations of one image [C, H, W] through a network in evaluation mode, on the CPU.

    A copy is used, and the network does not change. What torch counts is what runs: a convolution that is
    computed as another one counts as that one.
    """
    twin = copy.deepcopy(network).to("cpu", torch.float32).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        twin(torch.zeros(1, *shape))
    found = {name: sum(each.values()) for name, each in counter.get_flop_counts().items()}
    leaves = {name for name, each in twin.named_modules() if not any(each.children())}
    named = {name.partition(".")[2]: count for name, count in found.items() if name != OF_ALL}
    return Flops(int(found.get(OF_ALL, 0)), {name: int(named[name]) for name in leaves & set(named)})
