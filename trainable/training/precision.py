"""Number formats: what `auto` means on a device, and torch's switches for a format, set and restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, assert_never

import torch

from trainable.errors import Fault, RecipeError
from trainable.ranks import ALONE, Ranks
from trainable.recipe import training
from trainable.recipe.network_cost import Format


def resolve(spec: training.Precision, device: torch.device) -> Format:
    """Return the format that a run computes in. `auto` is the first of `formats_of`, where nothing was
    measured; Micikevicius et al., arXiv 1710.03740. Raises RecipeError for tf32 off CUDA."""
    check(spec, device.type)
    match spec.kind:
        case "auto":
            return formats_of(device)[0]
        case "fp32" | "tf32" | "bf16" | "fp16":
            return spec.kind
        case _:
            assert_never(spec.kind)


def check(spec: training.Precision, device_kind: str) -> None:
    """Raise RecipeError if a kind of device (`cpu`, `cuda`) does not have the format."""
    if spec.kind == "tf32" and device_kind != "cuda":
        message = f"tf32 is a format of CUDA devices, this run is on {device_kind}"
        raise RecipeError([Fault("precision.kind", message)])


def autocast(number_format: Format, device: torch.device) -> torch.autocast:
    """Return a context in which forward passes compute in the format; it may be entered many times."""
    match number_format:
        case "fp32" | "tf32":
            return torch.autocast(device.type, enabled=False)
        case "bf16":
            return torch.autocast(device.type, dtype=torch.bfloat16)
        case "fp16":
            return torch.autocast(device.type, dtype=torch.float16)
        case _:
            assert_never(number_format)


@contextmanager
def switches(number_format: Format, device: torch.device) -> Iterator[None]:
    """Set torch's process-wide CUDA switches for a run, and restore them afterwards; elsewhere do nothing.

    TF32 is allowed for convolutions by default, so fp32 must forbid it.
    """
    if device.type != "cuda":
        yield
        return
    before = _precisions()
    allowed = number_format == "tf32"
    _allow_tf32(matmul=allowed, cudnn=allowed)
    try:
        yield
    finally:
        _allow_tf32(matmul=before[0] == "tf32", cudnn=before[1] == "tf32")
        _set_precisions(before)


@contextmanager
def kernel_search(on: bool) -> Iterator[None]:
    """Let cuDNN time its kernels for each new shape, and take the fastest; or `on` False, forbid it.

    It takes seconds for each shape, in each process anew (0057), so only many steps at one shape earn it.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = on
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _allow_tf32(*, matmul: bool, cudnn: bool) -> None:
    """Set torch's older switches, which set the newer ones too.

    If only the newer ones are set, whatever reads an older one raises an error.
    """
    torch.backends.cuda.matmul.allow_tf32 = matmul
    torch.backends.cudnn.allow_tf32 = cudnn


def _precisions() -> tuple[str, str, str]:
    """Return torch's newer switches: of matrix products, of convolutions, and of recurrent layers."""
    cudnn: Any = torch.backends.cudnn  # torch puts `conv` and `rnn` there at run time
    return torch.backends.cuda.matmul.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision


def _set_precisions(values: tuple[str, str, str]) -> None:
    cudnn: Any = torch.backends.cudnn
    torch.backends.cuda.matmul.fp32_precision = values[0]
    cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = values[1:]


def formats_of(device: torch.device) -> tuple[Format, ...]:
    """Return the formats that a device has units for, the usual one first.

    That is bf16 or else fp16 on CUDA, and fp32 on a CPU: with units for bf16 a CPU trains some networks
    faster in it and others slower, which `probes.speed` measures.
    """
    if device.type == "cuda":
        half: Format = "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
        return (half, "fp32")
    if device.type == "cpu":
        units = torch.cpu.get_capabilities()
        return ("fp32", "bf16") if units.get("amx_bf16") or units.get("avx512_bf16") else ("fp32",)
    return ("fp32",)


@dataclass(frozen=True)
class Compute:
    """What a run computes on and in: its device, its number format, and the ranks that share its images."""

    device: torch.device
    number_format: Format
    ranks: Ranks = ALONE

    def autocast(self) -> torch.autocast:
        """Return a context in which forward passes compute in the format; it may be entered many times."""
        return autocast(self.number_format, self.device)

    @contextmanager
    def switched(self) -> Iterator[None]:
        """Set torch's switches for the format, without a search for kernels, and restore them afterwards."""
        with switches(self.number_format, self.device), kernel_search(False):
            yield
