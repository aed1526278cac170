"""A CUDA device on paper: tensors on the CPU are real, tensors on CUDA have shapes and no values.

torch's fake tensors stand for those on the device, and every operation that crosses between the two is
recorded with the function that asked for it. So a whole epoch runs without a GPU, and shows tensors on the
wrong device, reads and copies that wait, and how many kernels are launched. It shows no values, no memory, no
collectives, and nothing of the kernels themselves.

torch is made to believe in the device by `tests.gpu.on_paper.device`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from tests.trainable.training.test_synchronisation import WAITING

aten = torch.ops.aten

# CUDA copies so many pageable bytes aside before it returns, and waits for the device if there are more
STAGED_BYTES = 64 * 2**10

# The host needs the result of these operations, or its size; the one that is left out reads one number
SIZED_BY_VALUES = WAITING - {"aten._local_scalar_dense.default"}

LAUNCHES_NOTHING = ("aten.empty", "aten.new_empty", "aten.detach", "aten.alias", "aten.lift", "prim")

HERE = (__file__, str(Path(__file__).with_name("device.py")))
# A crossing is told by the deepest function in one of these folders, outside this one
OURS = (
    "/trainable/",
    "/timm/",
    "/torchvision/",
    "/torch/amp/",
    "/torch/optim/",
    "/torch/nn/utils/",
    "/tests/",
)


class Paper(TorchDispatchMode):
    """A mode that computes with shapes alone what is on CUDA, counts launches, and records what crosses."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        # Counts what waits for the device, as `what in folder/file.py function`
        self.waits: Counter[str] = Counter()
        self.launches = 0
        self.memory_fraction = 1.0  # torch may allocate so much of the device's memory in this process
        # Holds what is pinned on paper, so that no other memory gets its address
        self.pinned: list[Tensor] = []

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Say that torch.compile works under this mode: what it traces computes with shapes, too."""
        return True

    def clear(self) -> None:
        self.waits.clear()
        self.launches = 0

    def pin(self, tensor: Tensor) -> Tensor:
        """Make copies from a tensor's memory ones that need not wait."""
        self.pinned.append(tensor)
        return tensor

    def is_pinned(self, tensor: Tensor) -> bool:
        address = tensor.untyped_storage().data_ptr()
        return any(each.untyped_storage().data_ptr() == address for each in self.pinned)

    def wait(self, what: str) -> None:
        self.waits[f"{what} in {_asker()}"] += 1

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        held = any(_on_cuda(each) for each in tensors)
        asked = kwargs.get("device")
        to = None if asked is None else torch.device(asked).type
        if held and (answer := self._read(func, args, kwargs, to)) is not None:
            return answer
        if not held and to != "cuda":
            return func(*args, **kwargs)
        self._look(func, args, kwargs, tensors)
        return self._computed(func, args, kwargs)

    def _read(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], to: str | None) -> Any:
        """Return made-up values where the host reads the device, and None where it does not."""
        if func in (aten._local_scalar_dense.default, aten.item.default):
            self.wait("a number read")
            # Sums are float64 and are not zero. Whether gradients overflowed is float32: they did not.
            return {torch.float32: 0.0, torch.float64: 0.5}.get(args[0].dtype, 1)
        if func in (aten._to_copy.default, aten.to.dtype_layout) and to == "cpu":  # inference has the second
            self.wait("a tensor read")
            return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        if func is aten.copy_.default and not isinstance(args[0], FakeTensor):
            self.wait("a tensor read")
            return args[0]
        return None

    def _look(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: list[Tensor]) -> None:
        """Record whether an operation on the device waits, and whether it launches."""
        name = str(func)
        real = [each for each in tensors if not isinstance(each, FakeTensor)]
        if func in (aten._to_copy.default, aten.copy_.default) and real:
            self._look_at_copy(real[0], kwargs.get("non_blocking") or (len(args) > 2 and args[2]))
        elif name.startswith("aten._fused_") and any(each.dim() for each in real):
            raise RuntimeError(f"{name} on CUDA was given tensors of {len(real)} on the CPU")
        if name in SIZED_BY_VALUES:
            self.wait(name)
        if name.startswith(("aten.index.", "aten.index_put")):
            indices = [each for each in args[1] if each is not None]
            if any(each.dtype == torch.bool for each in indices):
                self.wait(f"{name} by a mask")
            if any(not isinstance(each, FakeTensor) for each in indices):
                self.wait(f"{name} by an index on the host")
        if not func.is_view and not name.startswith(LAUNCHES_NOTHING):
            self.launches += 1

    def _look_at_copy(self, source: Tensor, non_blocking: bool) -> None:
        size = source.numel() * source.element_size()
        if not non_blocking:
            self.wait("a copy to the device that blocks")
        elif size > STAGED_BYTES and not self.is_pinned(source):
            self.wait("a large copy from pageable memory")

    def _computed(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if str(func).startswith(
            "aten._fused_"
        ):  # it changes its arguments in place, and torch has no shapes for it
            return None
        args, kwargs = tree_map(self._shape_of, (args, kwargs))
        with self.fake:
            return func(*args, **kwargs)

    def _shape_of(self, value: Any) -> Any:
        """Return a fake tensor for a real one, on the CPU like it, without its value."""
        if not isinstance(value, Tensor) or isinstance(value, FakeTensor):
            return value
        shape = self.fake.from_tensor(value.detach())
        shape.constant = None
        return shape


def _on_cuda(tensor: Tensor) -> bool:
    return isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda"


def _asker() -> str:
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name not in HERE and any(each in name for each in OURS):
            return f"{'/'.join(name.split('/')[-2:])} {frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]
    return "unknown code"
