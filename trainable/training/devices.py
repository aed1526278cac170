"""Answers which device a run has, what it is called and what it lacks; and handles its memory.

How much of it was used, whether it ran out, freeing it, and what is still in use after a run was freed.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import distributed

from trainable.ranks import RankSilent

DRIVER_FILE = Path("/proc/driver/nvidia/version")  # NVIDIA's driver describes itself here while it is loaded

# By major version of CUDA, the oldest driver that runs programs built for it (NVIDIA, CUDA Compatibility,
# "minor version compatibility").
LEAST_DRIVERS = {11: 450, 12: 525, 13: 580}


ALLOWANCE_BYTES = 64 * 2**20  # beyond what the first run left in use: fragments, workspaces of other kernels

# CUDA's own in each process, which torch does not count: estimated from the drivers of 2025.
CONTEXT_BYTES = 600 * 2**20

# Parts of the texts, in small letters, of errors that say that memory ran out.
OUT_OF_MEMORY = (
    "out of memory",  # CUDA's runtime, as torch.AcceleratorError
    "_alloc_failed",  # cuBLAS, cuSOLVER, cuFFT, and cuDNN up to version 8
    "_allocation_failed",  # cuDNN since version 9, on the device and on the host
    "unable to find an engine to execute this computation",  # cuDNN: no engine's workspace fits
    "unable to find a valid cudnn algorithm",  # the same, in torch's other way to cuDNN
    "defaultcpuallocator",
    "std::bad_alloc",
)

# oneDNN's whole texts; longer ones say that it has no such operation.
OUT_OF_MEMORY_IN_ONEDNN = (
    "could not create a memory",
    "could not create a primitive",
    "could not execute a primitive",
)


def device_name(device: torch.device) -> str:
    """Return the name of a device in a provenance:
    `cpu`, or `cuda` with the model, as in `cuda (NVIDIA H200)`.

    The first word is the kind. A kind alone is also a name, for a device whose model is not known.
    """
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


def machine_name() -> str:
    """Return what decides which number format is fastest on this machine: its GPU, and the CPU's units."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    units = (name for name, there in torch.cpu.get_capabilities().items() if there is True)
    return ", ".join([gpu, torch.backends.cpu.get_cpu_capability(), *sorted(units)])


def problem_here(kind: str, may_compile: bool) -> str | None:
    """Return why this machine cannot train on a kind of device (`cpu`, `cuda`), or None if nothing is known.

    With `may_compile` it needs the compiler that torch.compile calls.
    """
    if kind == "cuda" and not torch.cuda.is_available():
        return driver_problem() or "PyTorch sees no GPU here: look at `nvidia-smi` and CUDA_VISIBLE_DEVICES"
    return _compiler_problem(kind) if may_compile else None


def driver_problem() -> str | None:
    """Return why PyTorch cannot use this machine's NVIDIA driver; None without a driver, or where it can."""
    try:
        found = re.search(r"\b(\d{3,})\.\d+", DRIVER_FILE.read_text(encoding="utf-8"))
    except OSError:
        return None
    cuda = torch.version.cuda
    if found is None or cuda is None:
        return None
    least = LEAST_DRIVERS.get(int(cuda.split(".")[0]), 0)
    if int(found[1]) >= least:
        return None
    return (
        f"NVIDIA's driver {found[0]} is too old: PyTorch {torch.__version__} is built for CUDA {cuda}, which "
        f"needs driver {least} or newer; update the driver, or install a PyTorch built for an older CUDA"
    )


def _compiler_problem(kind: str) -> str | None:
    """Return which compiler is missing: Triton calls one for C on GPUs, inductor one for C++ on CPUs."""
    variable, usual = ("CC", ("clang", "gcc")) if kind == "cuda" else ("CXX", ("g++",))
    asked = os.environ.get(variable)
    known = (asked,) if asked else usual
    if any(shutil.which(name) for name in known):
        return None
    names = ", ".join(known)
    return f"loop.compile needs a compiler: none of {names} is on the PATH (or name one in {variable})"


@contextmanager
def threads(count: int | None) -> Iterator[int]:
    """Set torch's threads to `count` (None changes nothing), yield their number,
    and restore the caller's."""
    before = torch.get_num_threads()
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most GPU memory used since the count began;
    on a CPU, the most memory that the process has used."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def wait_for(device: torch.device) -> None:
    """Wait until the device has done all its work, so that a clock may be read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# --- memory -------------------------------------------------------------------------------------------


class Baseline:
    """What stays allocated between two runs of one process, measured when its first run is freed.

    What the first run leaves is assumed to be the libraries' own; a leak that recurs shows from the second
    run on.
    """

    def __init__(self) -> None:
        self._bytes: int | None = None

    def excess(self, held: int) -> int:
        """Return the bytes in use beyond baseline and allowance, at least 0; the first call sets the
        baseline."""
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
