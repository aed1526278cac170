"""A device's memory: running out of it, giving it back, and what is still held after a run was freed."""

from __future__ import annotations

import gc

import torch

ALLOWANCE_BYTES = 64 * 2**20
"""How far what is held may rise above the first run's rest: fragments and workspaces of other kernels."""


class Baseline:
    """What stays allocated between two runs of one process, measured when its first run is freed.

    What the first run leaves is taken for the libraries' own; a leak that recurs shows from the second on.
    """

    def __init__(self) -> None:
        self._bytes: int | None = None

    def excess(self, held: int) -> int:
        """Bytes held beyond the baseline and the allowance, at least 0; the first call sets the baseline."""
        if self._bytes is None:
            self._bytes = held
        return max(0, held - self._bytes - ALLOWANCE_BYTES)


def ran_out(error: Exception) -> bool:
    """Whether an error says that memory could not be had: a CUDA device's, or the CPU's own."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    )


def give_back(device: torch.device) -> None:
    """Hand what no tensor uses back to the device, so that it can be had in other pieces."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def held_bytes(device: torch.device) -> int:
    """GPU memory in use by tensors once everything that can be given back was; 0 on other devices."""
    gc.collect()
    if device.type != "cuda":
        return 0
    clear_workspaces = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear_workspaces is not None:  # torch keeps them, MiBs a stream, and has no public way to free them
        clear_workspaces()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated(device)
