"""Makes torch believe in one CUDA device: what it would ask the driver is answered on paper.

Two native stubs are compiled from this folder with gcc and g++. A process must load them before torch, by the
environment that `stubs` returns; so `on_paper` works in processes started for it alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import subprocess
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.gpu.on_paper.ddp import DataParallelOnPaper
from tests.gpu.on_paper.paper import Paper
from tests.gpu.on_paper.shapes import add_shapes

HERE = Path(__file__).parent

DEVICES = 127  # torch without a driver has a stand-in with so many devices: autograd asks each of them


def stubs(folder: Path) -> dict[str, str]:
    """Compiles the stubs into a folder, and returns the environment of a process that loads them."""
    driver, count = folder / "libcuda.so.1", folder / "device_count.so"
    options = ["-shared", "-fPIC", "-w", "-o"]
    subprocess.run(["gcc", *options, str(driver), str(HERE / "driver.c")], check=True)
    subprocess.run(["g++", *options, str(count), str(HERE / "device_count.cpp")], check=True)
    return {"LD_LIBRARY_PATH": str(folder), "LD_PRELOAD": str(count), "PAPER_STUB": str(count)}


@contextlib.contextmanager
def on_paper(memory: int = 80 * 2**30) -> Iterator[Paper]:
    """Let torch have one CUDA device with so many bytes of memory, and yield what records its use."""
    torch._C._ensureCUDADeviceGuardSet()
    ctypes.CDLL(os.environ["PAPER_STUB"]).set_paper_devices(DEVICES)
    paper = Paper()
    with contextlib.ExitStack() as stack:
        for name, answer in {**_of_the_driver(memory), **_of_tensors(paper)}.items():
            stack.enter_context(mock.patch(name, answer))
        stack.callback(add_shapes()._destroy)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))  # the others have no shapes on paper
        yield stack.enter_context(paper)


def _of_the_driver(memory: int) -> dict[str, Any]:
    """Return what stands for torch's questions to CUDA, by name."""
    properties = types.SimpleNamespace(total_memory=memory, major=9, minor=0, L2_cache_size=2**25)
    return {
        "torch.cuda._lazy_init": lambda: None,
        "trainable.training.gradients.DistributedDataParallel": DataParallelOnPaper,
        "torch.cuda.is_available": lambda: True,
        "torch.cuda.is_bf16_supported": lambda including_emulation=True: True,
        "torch.cuda.is_current_stream_capturing": lambda: False,
        "torch.cuda.amp.common.amp_definitely_not_available": lambda: False,
        "torch.cuda.get_device_properties": lambda *_: properties,
        "torch.cuda.current_device": lambda: 0,
        "torch.cuda.device": lambda _: contextlib.nullcontext(),
        "torch.cuda.stream": lambda _: contextlib.nullcontext(),
        "torch.cuda.reset_peak_memory_stats": lambda *_: None,
        "torch.cuda.max_memory_allocated": lambda *_: 0,
        "torch.cuda.memory_allocated": lambda *_: 0,
        "torch.cuda.memory_reserved": lambda *_: 0,
        "torch.cuda.mem_get_info": lambda *_: (memory, memory),
        "torch.cuda.empty_cache": lambda: None,
        "torch.cuda.get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
        "torch.cuda.set_rng_state": lambda *_: None,
        "torch.cuda.manual_seed": lambda _: None,
        "torch._C._select_conv_backend": _conv_backend,
        "torch.compile": functools.partial(torch.compile, backend="eager"),  # no kernel is made on paper
    }


def _of_tensors(paper: Paper) -> dict[str, Any]:
    """Return what stands for functions of tensors and streams that the mode would not see, by name."""
    plain, empty = torch.tensor, torch.empty

    def tensor(data: Any, *args: Any, device: Any = None, **options: Any) -> Tensor:
        made = plain(data, *args, **options)
        return made if device is None else made.to(device)

    def allocated(*args: Any, pin_memory: bool = False, **options: Any) -> Tensor:
        made = empty(*args, **options)
        return paper.pin(made) if pin_memory else made

    def is_pinned(each: Tensor, *_: Any) -> bool:
        return paper.is_pinned(each)

    def allow(fraction: float, *_: Any) -> None:
        paper.memory_fraction = fraction

    def waited_for(what: str) -> Any:
        made = mock.MagicMock()
        made.return_value.synchronize = lambda: paper.wait(what)
        return made

    return {
        "torch.cuda.Event": waited_for("an event"),
        "torch.cuda.Stream": waited_for("a stream"),
        "torch.cuda.current_stream": waited_for("a stream"),
        "torch.tensor": tensor,
        "torch.empty": allocated,
        "torch.Tensor.pin_memory": lambda each, *_: paper.pin(each.clone()),
        "torch.Tensor.is_pinned": is_pinned,
        "torch.cuda.set_per_process_memory_fraction": allow,
        "torch.cuda.synchronize": lambda *_: paper.wait("the whole device"),
        # torch takes its kernels for many tensors at once only for these types
        "torch.optim.optimizer._foreach_supported_types": [Tensor, torch.nn.Parameter, FakeTensor],
        "torch.utils._foreach_utils._foreach_supported_types": [Tensor, FakeTensor],
    }


def _conv_backend(*_: Any, **__: Any) -> Any:
    return torch._C._ConvBackend.Cudnn  # type: ignore[attr-defined]
