"""Answers which device a run has, what it is called, and how much of its memory was used."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def default_device() -> torch.device:
    """Returns the first CUDA device, or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name(device: torch.device) -> str:
    """Returns the name of a device in a provenance:
    `cpu`, or `cuda` with the model, as in `cuda (NVIDIA H200)`.

    The first word is the kind. A kind alone is also a name, for a device whose model is not known.
    """
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


@contextmanager
def threads(count: int | None) -> Iterator[int]:
    """Sets torch's threads to `count` (None changes nothing), yields their number,
    and restores the caller's."""
    before = torch.get_num_threads()
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def peak_memory_bytes(device: torch.device) -> int:
    """Returns the most GPU memory used since the count began;
    on a CPU, the most memory that the process has used."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
