"""Copies batches from an array in host memory, or in a mapped file, to a device, some batches ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

import torch
from torch import Tensor

from trainable.data.source import Integers

BUFFERS = 3  # one buffer is filled while one is copied and one waits to be copied


class _Buffer:
    """A batch in pinned memory until its copy to the device has ended."""

    def __init__(self, like: Tensor, size: int, device: torch.device) -> None:
        pinned = device.type == "cuda"
        with torch.inference_mode(False):  # scoring asks for batches, and another thread fills the memory
            self._memory = torch.empty((size, *like.shape[1:]), dtype=like.dtype, pin_memory=pinned)
        self._device = device
        self._copied = torch.cuda.Event() if pinned else None
        self._count = 0

    def fill(self, held: Tensor, chosen: Tensor) -> None:
        """Gather images into the memory, once its last copy has ended."""
        if self._copied is not None:
            self._copied.synchronize()
        self._count = len(chosen)
        torch.index_select(held, 0, chosen, out=self._memory[: self._count])

    def copied(self) -> Tensor:
        """Return the batch on the device; the host does not wait for the copy."""
        batch = self._memory[: self._count]
        if self._copied is None:
            return batch.clone()
        there = batch.to(self._device, non_blocking=True)
        self._copied.record()
        return there


def prefetched(held: Tensor, batches: Sequence[Integers], device: torch.device) -> Iterator[Tensor]:
    """Yield the batches' images [B, ...] of an array [N, ...] on the device, in order.

    A thread fills a ring of BUFFERS pinned buffers ahead; it ends with the iterator.
    """
    if not batches:
        return
    largest = max(map(len, batches))
    empty: SimpleQueue[_Buffer | None] = SimpleQueue()
    full: SimpleQueue[_Buffer | Exception] = SimpleQueue()
    for _ in range(min(BUFFERS, len(batches))):
        empty.put(_Buffer(held, largest, device))
    thread = threading.Thread(target=_fill, args=(held, batches, empty, full), daemon=True)
    thread.start()
    try:
        for _ in batches:
            buffer = full.get()
            if isinstance(buffer, Exception):
                raise buffer
            images = buffer.copied()
            empty.put(buffer)
            yield images
    finally:
        empty.put(None)
        thread.join()


def _fill(
    held: Tensor,
    batches: Sequence[Integers],
    empty: SimpleQueue[_Buffer | None],
    full: SimpleQueue[_Buffer | Exception],
) -> None:
    """Fill buffers in the order of the batches, until all are read or None comes instead of a buffer."""
    try:
        for batch in batches:
            if (buffer := empty.get()) is None:
                return
            buffer.fill(held, torch.from_numpy(batch))
            full.put(buffer)
    except Exception as error:  # raised again where the batch is asked for
        full.put(error)
