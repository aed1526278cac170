"""Derives the randomness of a run from its seed: nothing is carried from one epoch to the next.

Every generator that an epoch uses is seeded again from (seed, use, epoch), from the first step of each later
segment of the epoch, and from the rank if ranks must differ. So a resumed run draws what one that never
stopped would have drawn, and no state is saved.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


class Use(enum.IntEnum):
    """What random numbers are for. The values are part of every saved run: never change or reuse one."""

    WEIGHTS = 1
    ORDER = 2
    LAYERS = 3
    MIXING = 4
    SAMPLE = 5


def derive(seed: int, use: Use, *parts: int) -> int:
    """Return a seed of 63 bits, independent between uses and parts (numpy's SeedSequence)."""
    return int(np.random.SeedSequence([seed, use, *parts]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def of_segment(epoch: int, first: int) -> tuple[int, ...]:
    """Return the parts of a seed for a segment of an epoch, given its first step."""
    return (epoch, first) if first else (epoch,)


def generator(seed: int, use: Use, *parts: int) -> torch.Generator:
    """Return a new CPU generator, seeded by `derive`."""
    return torch.Generator().manual_seed(derive(seed, use, *parts))


def sample(seed: int, images: int, count: int) -> torch.Tensor:
    """Return the positions, int64, of `count` random images of so many, or all: the same in every epoch and
    on every rank."""
    return torch.randperm(images, generator=generator(seed, Use.SAMPLE))[:count]


@contextmanager
def global_generators(device: torch.device, seed: int) -> Iterator[None]:
    """Seed the global generators of the CPU and one device, which torch's layers draw from, and restore
    them."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices, device_type="cuda"):
        reseed(device, seed)
        yield


def reseed(device: torch.device, seed: int) -> None:
    """Seed the global generators of the CPU and one device."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
