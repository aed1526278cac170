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
WARM_UPS = 3  # memory is taken and kernels are chosen in the first rounds, which do not count
LEAST_ROUNDS, MOST_ROUNDS, SECONDS = 15, 200, 2.0  # as many rounds are timed as fit into these seconds
RESAMPLES, SEED = 2000, 0  # of the interval of a ratio


@dataclass(frozen=True)
class Latency:
    """The milliseconds of passes, from a batch on the device to its answers, in the order of turns."""

    passes_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return median(self.passes_ms)

    def tree(self) -> dict[str, Any]:
        """Return plain data for JSON: the median, and between which times 90 % of the passes are."""
        low, high = self.bounds_ms
        return {"median_ms": self.median_ms, "p5_ms": low, "p95_ms": high, "rounds": len(self.passes_ms)}

    @property
    def bounds_ms(self) -> tuple[float, float]:
        """The 5th and the 95th percentile of the passes."""
        low, high = np.percentile(self.passes_ms, (5, 95))
        return float(low), float(high)


@dataclass(frozen=True)
class Ratio:
    """How long a network's median pass is, over that of another, and the 95 % interval of this."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"

    def tree(self) -> dict[str, float]:
        """Return plain data for JSON."""
        return {"ratio": self.value, "low": self.low, "high": self.high}


def ratio_of(ours: Latency, theirs: Latency) -> Ratio:
    """Return the ratio of the median passes of two networks that took turns.

    The interval has the percentiles of a bootstrap that draws the same turns for both. It draws stretches of
    turns, n^(1/3) of n each, since what slows one pass slows the next, too (the circular blocks of Politis
    and Romano, 1992; the length is of the order of Hall, Horowitz and Jing, 1995, Biometrika 82, 561-574).
    What lasts longer than the measurement is not in it.
    """
    pairs = np.array([ours.passes_ms, theirs.passes_ms])
    turns = pairs.shape[1]
    length = max(1, round(turns ** (1 / 3)))
    starts = np.random.default_rng(SEED).integers(turns, size=(RESAMPLES, -(-turns // length), 1))
    drawn = ((starts + np.arange(length)) % turns).reshape(RESAMPLES, -1)[:, :turns]
    medians = np.median(pairs[:, drawn], axis=2)
    low, high = np.percentile(medians[0] / medians[1], (2.5, 97.5))
    return Ratio(ours.median_ms / theirs.median_ms, float(low), float(high))


def latencies(
    networks: Mapping[str, nn.Module], shape: tuple[int, int, int], recipe: Recipe, device: torch.device
) -> dict[str, dict[int, Latency]]:
    """Return the latency of each network by batch, for images [C, H, W], in the recipe's number format and
    layout, in evaluation mode, one view, not compiled.

    The networks take turns, each pass of one after a pass of the others. They are moved to the device.
    """
    number_format = precision.resolve(recipe.precision, device)
    for each in networks.values():
        each.to(device, memory_format=layout_of(recipe)).eval()  # type: ignore[call-overload]
    found: dict[str, dict[int, Latency]] = {name: {} for name in networks}
    with torch.inference_mode(), precision.switches(number_format, device), precision.kernel_search(True):
        for batch in BATCHES:
            images = torch.zeros(batch, *shape, device=device).contiguous(memory_format=layout_of(recipe))
            with precision.autocast(number_format, device):
                times = _in_turns(networks, images)
            for name, passes in times.items():
                found[name][batch] = Latency(tuple(passes))
    return found


def _in_turns(networks: Mapping[str, nn.Module], images: torch.Tensor) -> dict[str, list[float]]:
    """Return the milliseconds of each network's passes."""
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
