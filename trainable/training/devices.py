"""Answers which device a run has, what it is called, what it lacks, and how much of its memory was used."""

from __future__ import annotations

import os
import re
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

DRIVER_FILE = Path("/proc/driver/nvidia/version")
"""NVIDIA's driver describes itself here while it is loaded."""
LEAST_DRIVERS = {11: 450, 12: 525, 13: 580}
"""The oldest driver that runs programs built for a major version of CUDA (NVIDIA, CUDA Compatibility, "minor
version compatibility")."""


def default_device() -> torch.device:
    """Return the first CUDA device, or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


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
