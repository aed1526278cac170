"""Measures how long networks take to answer, in turns, so that what else the machine does hits all alike."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from trainable.recipe import Recipe
from trainable.training import precision
from trainable.training.devices import wait_for
from trainable.training.network import layout_of

BATCHES = (1, 32)
WARM_UPS = 3
"""Memory is taken and kernels are chosen in the first rounds, which do not count."""
LEAST_ROUNDS, MOST_ROUNDS, SECONDS = 15, 200, 2.0
"""So many rounds are timed, as many as fit into these seconds."""


@dataclass(frozen=True)
class Latency:
    """Holds milliseconds from a batch on the device to its answers: median, 5th and 95th percentile."""

    median_ms: float
    p5_ms: float
    p95_ms: float
    rounds: int

    def tree(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        return vars(self).copy()


def latencies(
    networks: Mapping[str, nn.Module], shape: tuple[int, int, int], recipe: Recipe, device: torch.device
) -> dict[str, dict[int, Latency]]:
    """Returns the latency of each network by batch, for images [C, H, W], in the recipe's number format and
    layout, in evaluation mode, one view, not compiled.

    The networks take turns, each pass of one after a pass of the others. They are moved to the device.
    """
    number_format = precision.resolve(recipe.precision, device)
    for each in networks.values():
        each.to(device, memory_format=layout_of(recipe)).eval()  # type: ignore[call-overload]
    found: dict[str, dict[int, Latency]] = {name: {} for name in networks}
    with torch.inference_mode(), precision.switches(number_format, device, one_size=True):
        for batch in BATCHES:
            images = torch.zeros(batch, *shape, device=device).contiguous(memory_format=layout_of(recipe))
            with precision.autocast(number_format, device):
                times = _in_turns(networks, images)
            for name, passes in times.items():
                found[name][batch] = _summary(passes)
    return found


def _in_turns(networks: Mapping[str, nn.Module], images: torch.Tensor) -> dict[str, list[float]]:
    """Returns the milliseconds of each network's passes."""
    for network in networks.values():
        for _ in range(WARM_UPS):
            network(images)
    times: dict[str, list[float]] = {name: [] for name in networks}
    until, rounds = time.perf_counter() + SECONDS, 0
    while rounds < LEAST_ROUNDS or (rounds < MOST_ROUNDS and time.perf_counter() < until):
        for name, network in networks.items():
            wait_for(images.device)
            began = time.perf_counter()
            network(images)
            wait_for(images.device)
            times[name].append(1e3 * (time.perf_counter() - began))
        rounds += 1
    return times


def _summary(times: list[float]) -> Latency:
    low, high = np.percentile(times, (5, 95))
    return Latency(median(times), float(low), float(high), len(times))
