"""Estimates from steps on few images how much of a CPU's memory a training step on many takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.optim.optimizer import register_optimizer_step_pre_hook

from trainable.probes.live_bytes import LiveBytes
from trainable.training.devices import ran_out

SMALLEST = 2
"""The smallest step has so many images: BatchNorm needs two values a channel."""
MOST_IMAGES, ENOUGH_BYTES, OVER_HELD = 64, 64 * 2**20, 4
"""Steps grow until they have so many images, or take so many bytes and so many times the bytes that are held:
there activations outweigh the rest, and bytes grow in a straight line."""

KERNELS = 2.0
"""The memory that kernels use themselves is not seen: the process was measured to grow by 1.0 to 1.9 times
the live bytes (residual nets at 8 and 28 px, fp32 and bf16, with and without checkpointing)."""


@dataclass(frozen=True)
class Line:
    """Describes bytes as a line in the images: those that are held, and the larger of two peaks.

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


def draw_line(take: Callable[[int], object], held: int, limit: int, most_images: int = MOST_IMAGES) -> Line:
    """Return the line through the two largest of a few small steps; `take` takes a step on so many images.

    Peaks bend upwards only (they are the most of several lines), so the last two steps are the truest. No
    step is taken whose estimate is over `limit` bytes, none after one for which memory ran out, and none with
    more images than are asked for, `most_images`, but a second one.
    """
    fewer, less = 0, 0
    more, (most, update) = SMALLEST, _peaks(take, SMALLEST)
    while True:
        line = Line(held, more, most, max(0, most - less) / (more - fewer), update)
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
