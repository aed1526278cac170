"""Handles a device's memory: running out of it, freeing it,
and what is still in use after a run was freed."""

from __future__ import annotations

import gc

import torch

ALLOWANCE_BYTES = 64 * 2**20
"""Memory in use may rise this far above what the first run left:
fragments and workspaces of other kernels."""


class Baseline:
    """Remembers what stays allocated between two runs of one process, measured when its first run is freed.

    What the first run leaves is assumed to be the libraries' own; a leak that recurs shows from the second
    run on.
    """

    def __init__(self) -> None:
        self._bytes: int | None = None

    def excess(self, held: int) -> int:
        """Returns the bytes in use beyond the baseline and the allowance, at least 0;
        the first call sets the baseline."""
        if self._bytes is None:
            self._bytes = held
        return max(0, held - self._bytes - ALLOWANCE_BYTES)


def ran_out(error: Exception) -> bool:
    """Returns whether an error says that memory ran out: a CUDA device's, or the CPU's own."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    )


def give_back(device: torch.device) -> None:
    """Returns memory that no tensor uses to the device, so that it can be allocated in other pieces."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def held_bytes(device: torch.device) -> int:
    """Returns the GPU memory that tensors use after all free memory was returned; 0 on other devices."""
    gc.collect()
    if device.type != "cuda":
        return 0
    clear_workspaces = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear_workspaces is not None:  # torch holds them, MiBs a stream, and has no public way to free them
        clear_workspaces()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated(device)
