"""Handles a device's memory: running out of it, freeing it,
and what is still in use after a run was freed."""

from __future__ import annotations

import gc

import torch
from torch import distributed

from trainable.ranks import RankSilent

ALLOWANCE_BYTES = 64 * 2**20
"""Memory in use may rise this far above what the first run left:
fragments and workspaces of other kernels."""

CONTEXT_BYTES = 600 * 2**20
"""What CUDA itself needs in each process, which torch does not count: estimated from the drivers of 2025."""

OUT_OF_MEMORY = (
    "out of memory",  # CUDA's runtime, as torch.AcceleratorError
    "_alloc_failed",  # cuBLAS, cuSOLVER, cuFFT, and cuDNN up to version 8
    "_allocation_failed",  # cuDNN since version 9, on the device and on the host
    "unable to find an engine to execute this computation",  # cuDNN: no engine's workspace fits
    "unable to find a valid cudnn algorithm",  # the same, in torch's other way to cuDNN
    "defaultcpuallocator",
    "std::bad_alloc",
)
"""Parts of the texts, in small letters, of errors that say that memory ran out."""

OUT_OF_MEMORY_IN_ONEDNN = (
    "could not create a memory",
    "could not create a primitive",
    "could not execute a primitive",
)
"""These are oneDNN's whole texts; longer ones say that it has no such operation."""


class Baseline:
    """Remembers what stays allocated between two runs of one process, measured when its first run is freed.

    What the first run leaves is assumed to be the libraries' own; a leak that recurs shows from the second
    run on.
    """

    def __init__(self) -> None:
        self._bytes: int | None = None

    def excess(self, held: int) -> int:
        """Return the bytes in use beyond the baseline and the allowance, at least 0;
        the first call sets the baseline."""
        if self._bytes is None:
            self._bytes = held
        return max(0, held - self._bytes - ALLOWANCE_BYTES)


def ran_out(error: Exception) -> bool:
    """Return whether an error says that memory ran out, and less work at once may help: memory of a CUDA
    device, or the host's own.

    Only torch's own allocator has a type for it. CUDA, its libraries and oneDNN allocate memory, too, and say
    in the error's text alone that there is none; the more processes share a GPU, the more often they do.
    NCCL does, too, but its memory does not depend on the work, and it refuses a communicator that has failed:
    an exchange between ranks that failed is never tried again.
    """
    if isinstance(error, RankSilent | distributed.DistError):
        return False
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        any(each in text for each in OUT_OF_MEMORY) or text.strip() in OUT_OF_MEMORY_IN_ONEDNN
    )


def memory_fraction(share: float, total_bytes: int) -> float:
    """Return the fraction of a GPU's memory that torch may allocate in a process with a share of the GPU.

    CUDA's context is in the share, too. Raises ValueError if nothing is left beside it.
    """
    left = share - CONTEXT_BYTES / total_bytes
    if left <= 0.0:
        raise ValueError(
            f"a share of {share:g} of a GPU with {total_bytes / 2**30:.1f} GiB leaves no memory to a trial: "
            f"CUDA itself needs {CONTEXT_BYTES / 2**30:.1f} GiB in each process"
        )
    return left


def give_back(device: torch.device) -> None:
    """Return memory that no tensor uses to the device, so that it can be allocated in other pieces."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def held_bytes(device: torch.device) -> int:
    """Return the GPU memory that tensors use after all free memory was returned; 0 on other devices."""
    gc.collect()
    if device.type != "cuda":
        return 0
    clear_workspaces = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear_workspaces is not None:  # torch holds them, MiBs a stream, and has no public way to free them
        clear_workspaces()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated(device)
