"""Estimates from steps on few images how much of a CPU's memory a training step on many takes.

The CPU's allocator does not count what it gives: so the tensors that are alive are counted.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainable.training.devices import ran_out

SMALLEST = 2  # images in the smallest step: BatchNorm needs two values a channel
# Steps grow until they have so many images, or take so many bytes and so many times the bytes that are held:
# there activations outweigh the rest, and bytes grow in a straight line
MOST_IMAGES, ENOUGH_BYTES, OVER_HELD = 64, 64 * 2**20, 4

# The memory that kernels use themselves is not seen: the process was measured to grow by 1.0 to 1.9 times the
# live bytes (residual nets at 8 and 28 px, fp32 and bf16, with and without checkpointing)
KERNELS = 2.0


@dataclass(frozen=True)
class MemoryLine:
    """Bytes as a line in the images: those that are held, and the larger of two peaks.

    Up to the optimizer's step the peak of live tensors is `at_bytes` at `at_images` and grows by
    `image_bytes` an image; in that step it is `update_bytes` whatever the batch.
    """

    held_bytes: int
    at_images: int
    at_bytes: int
    image_bytes: float
    update_bytes: int

    def bytes(self, images: int) -> int:
        passes = self.at_bytes + math.ceil(self.image_bytes * (images - self.at_images))
        return self.held_bytes + math.ceil(KERNELS * max(passes, self.update_bytes))


def draw_line(
    take: Callable[[int], object], held: int, limit: int, most_images: int = MOST_IMAGES
) -> MemoryLine:
    """Return the line through the two largest of a few small steps; `take` takes a step on so many images.

    Peaks bend upwards only (they are the most of several lines), so the last two steps are the truest. No
    step is taken whose estimate is over `limit` bytes, none after one for which memory ran out, and none with
    more images than are asked for, `most_images`, but a second one.
    """
    fewer, less = 0, 0
    more, (most, update) = SMALLEST, _peaks(take, SMALLEST)
    while True:
        line = MemoryLine(held, more, most, max(0, most - less) / (more - fewer), update)
        enough = more >= most_images or most >= max(ENOUGH_BYTES, OVER_HELD * held)
        if (enough and fewer) or line.bytes(2 * more) > limit:
            return line
        try:
            peaks = _peaks(take, 2 * more)
        except Exception as error:
            if not ran_out(error):
                raise
            return line
        (fewer, less), (more, (most, update)) = (more, most), (2 * more, peaks)


def _peaks(take: Callable[[int], object], size: int) -> tuple[int, int]:
    """Return the most bytes alive before the optimizer's step, and in it."""
    before = 0
    with LiveBytes() as live:

        def note(*_: Any) -> None:
            nonlocal before
            before = max(before, live.restart())

        hook = register_optimizer_step_pre_hook(note)
        try:
            take(size)
        finally:
            hook.remove()
        return before, live.restart()


class LiveBytes(TorchDispatchMode):
    """The bytes of storages that are made inside its `with` and are alive at once; `peak` is the most there
    were.

    Backward passes and recomputed activations are counted as well. What a kernel uses itself, a convolution's
    re-ordered copies for one, is not seen.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._live = 0
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def restart(self) -> int:
        """Return the peak since the last call, and start to count the peak again."""
        peak, self.peak = self.peak, self._live
        return peak

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        inputs = {_storage_address(each) for each in _tensors((args, kwargs))}
        result = function(*args, **(kwargs or {}))
        for each in _tensors(result):
            storage = each.untyped_storage()
            if id(storage) not in self._known and storage.data_ptr() not in inputs:
                self._add(storage)
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()

        def drop(_: Any) -> None:
            self._live -= size
            del self._known[key]

        self._known[key] = weakref.ref(storage, drop)
        self._live += size
        self.peak = max(self.peak, self._live)


def tensor_bytes(tree: Any) -> int:
    """Return the bytes of the tensors in nested containers, each storage once."""
    sizes = {_storage_address(each): each.untyped_storage().nbytes() for each in _tensors(tree)}
    return sum(sizes.values())


def _storage_address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors(tree: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))
