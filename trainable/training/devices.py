"""The device of a run: which one, what it is called, how much of its memory was held."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def default_device() -> torch.device:
    """The first CUDA device, or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name(device: torch.device) -> str:
    """What a provenance calls a device: `cpu`, or `cuda` with the model, as in `cuda (NVIDIA H200)`.

    The first word is the kind, and alone is a name too: of a device whose model is not known.
    """
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


@contextmanager
def threads(count: int | None) -> Iterator[int]:
    """Torch's threads set to a count (left alone where None), and the caller's again afterwards; how many."""
    before = torch.get_num_threads()
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def peak_memory_bytes(device: torch.device) -> int:
    """The most GPU memory held since the count began; on a CPU the most that the process has held."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
