"""Finds the largest micro-batch that fits, and the smallest that is as fast, by trying whole training steps.

The documents ask for the largest batch (training tricks notes, 000:57; PyTorch speed notes, 002:11; 17 ways
guide, 004:43). Accumulation leaves the effective batch the same for every micro-batch, so the micro-batch
changes no result except through BatchNorm's statistics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

import torch

from trainable.augmentation.sizes import extreme_sizes
from trainable.errors import UserError
from trainable.files.host_memory import available_bytes
from trainable.probes.memory_estimate import MOST_IMAGES, SMALLEST, MemoryLine, draw_line, tensor_bytes
from trainable.training.devices import give_back, ran_out
from trainable.training.run import Run

# What stops the micro-batch from being larger: memory ran out, `limit_bytes` (also its default on a CPU),
# `largest`, or the number of images
Bound = Literal["memory", "limit", "largest", "images"]

FINEST = 8  # steps between two powers of two in which sizes are tried: eighths, which suit kernels too
FLAT = 0.05  # a size whose speed is within this share of the fastest is as fast
TIMED_SECONDS, TIMED_STEPS = 0.3, 8  # a size is timed for at least so long, or for so many steps
# On a CPU no size is tried whose step takes longer: memory is estimated there, and speed is flat by then
CPU_STEP_SECONDS = 2.0


@dataclass(frozen=True)
class Tried:
    """One size of a step: whether it fits, the bytes that it takes, and its speed if it was taken.

    On a CUDA device `peak_bytes` is the most that the process takes; on a CPU it is an estimate of what the
    weights, the optimizer and the step take together. It is None if memory ran out.
    """

    images: int
    fits: bool
    peak_bytes: int | None
    images_per_second: float | None


@dataclass(frozen=True)
class BatchFound:
    """The largest micro-batch of a run, with the sizes that were tried."""

    tried: tuple[Tried, ...]  # smallest first
    largest: int  # 0 if not even one image fits
    bound: Bound
    batch_size: int
    limit_bytes: int | None

    @property
    def found(self) -> bool:
        return self.largest > 0

    @property
    def flat(self) -> int | None:
        """The smallest size whose speed is within 5 % of the best: a larger one uses memory for nothing."""
        timed = {
            each.images: each.images_per_second
            for each in self.tried
            if each.fits and each.images_per_second is not None
        }
        best = max(timed.values(), default=0.0)
        return min((size for size, speed in timed.items() if speed >= (1 - FLAT) * best), default=None)

    @property
    def micro_batch(self) -> int | None:
        """The value for `loop.micro_batch`, or None if the whole effective batch fits."""
        return self.largest if 0 < self.largest < self.batch_size else None

    @property
    def image_bytes(self) -> int | None:
        """The bytes that one more image takes, between the two largest sizes that fit."""
        sizes = [(each.images, each.peak_bytes) for each in self.tried if each.fits]
        match sizes[-2:]:
            case [(fewer, int(less)), (more, int(most))]:
                return (most - less) // (more - fewer)
            case _:
                return None

    def tree(self) -> dict[str, Any]:
        """Return plain data, all numbers finite."""
        read = {name: getattr(self, name) for name in ("found", "flat", "micro_batch", "image_bytes")}
        return {**asdict(self), **read}


def batch_find(run: Run, *, limit_bytes: int | None = None, largest: int | None = None) -> BatchFound:
    """Find the largest micro-batch of a run, first by doubling, then by halving the interval that remains.

    Args:
        limit_bytes: how much may be used, as `Tried.peak_bytes` counts; by default all that a CUDA device
            has, on a CPU half of the memory that is free.
        largest: the most images to try; by default, and at most, as many as there are to train on.

    Each size is a whole training step on that many images, at a rate of 0. On a CPU steps of over two seconds
    are left out, and memory is estimated along a line through small steps: running out of it would end more
    than this process. The run is afterwards as it was. Raises UserError for impossible arguments.
    """
    _check(limit_bytes, largest)
    images = run.info.train_images
    grid = sizes(min(largest or images, images))
    end: Bound = "largest" if largest is not None and largest <= images else "images"
    try:
        with run.probing(run.recipe.loop.epochs - 1):  # when everything is trained
            steps = Steps(run)
            if run.device.type == "cuda":
                tried, bound = _tried_on_cuda(steps, grid, limit_bytes)
            else:
                limit_bytes = limit_bytes if limit_bytes is not None else available_bytes() // 2
                tried, bound = _tried_on_cpu(steps, grid, limit_bytes)
    finally:
        give_back(run.device)
    found = max((each.images for each in tried if each.fits), default=0)
    return BatchFound(tuple(tried), found, bound or end, run.recipe.loop.batch_size, limit_bytes)


def step_bytes(run: Run) -> int:
    """Return the bytes that a training step on the run's micro-batch takes, as `Tried.peak_bytes` counts.

    Where memory runs out, it is all that there is: of a CUDA device, or half of what a CPU's machine has
    free. The run is afterwards as it was.
    """
    try:
        with run.probing(run.recipe.loop.epochs - 1):  # when everything is trained
            steps = Steps(run)
            if run.device.type == "cuda":
                peak = steps.on_cuda(run.micro_batch).peak_bytes
                return peak if peak is not None else torch.cuda.mem_get_info(run.device)[1]
            limit = available_bytes() // 2
            line = steps.line(limit, min(run.micro_batch, MOST_IMAGES))
            return line.bytes(run.micro_batch) if line is not None else limit
    finally:
        give_back(run.device)


def sizes(most: int) -> list[int]:
    """Return the sizes that may be tried, up to `most`: powers of two and the eighths between them."""
    grid, size = [], 1
    while size <= most:
        grid.append(size)
        size += max(1, (1 << (size.bit_length() - 1)) // FINEST)
    return grid


def search(
    grid: Sequence[int],
    attempt: Callable[[int], Tried],
    enough: Callable[[Tried], bool] = lambda tried: False,
) -> list[Tried]:
    """Return what attempts say, smallest first:
    of the grid's powers of two and its last size, then by halving.

    Doubling ends early if an attempt is `enough`. It is assumed that sizes fit up to some size, and not
    beyond.
    """
    tried: list[Tried] = []
    fits, fails = -1, len(grid)
    for index in _doubling(grid):
        tried.append(attempt(grid[index]))
        if not tried[-1].fits:
            fails = index
            break
        fits = index
        if enough(tried[-1]):
            return tried
    while fails - fits > 1:
        middle = (fits + fails) // 2
        tried.append(attempt(grid[middle]))
        fits, fails = (middle, fails) if tried[-1].fits else (fits, middle)
    return sorted(tried, key=lambda each: each.images)


def _doubling(grid: Sequence[int]) -> list[int]:
    """Return the indices of the powers of two, and the last; a single image only if no more are asked for."""
    powers = [index for index, size in enumerate(grid) if size.bit_count() == 1]
    return sorted({*(powers[1:] or powers), len(grid) - 1}) if grid else []


def _tried_on_cuda(
    steps: Steps, grid: Sequence[int], limit_bytes: int | None
) -> tuple[list[Tried], Bound | None]:
    tried = search(grid, lambda size: steps.on_cuda(size, limit_bytes))
    over = [each for each in tried if not each.fits]
    if not over:
        return tried, None
    return tried, "memory" if over[0].peak_bytes is None else "limit"


def _tried_on_cpu(steps: Steps, grid: Sequence[int], limit: int) -> tuple[list[Tried], Bound | None]:
    line = steps.line(limit)  # None if two images are too many: then one is tried, or none

    def reckoned(size: int) -> int | None:
        return line.bytes(size) if line is not None else None

    def attempt(size: int) -> Tried:
        speed = steps.speed(size)
        return Tried(size, speed is not None, reckoned(size) if speed is not None else None, speed)

    def enough(tried: Tried) -> bool:
        return 2 * tried.images > CPU_STEP_SECONDS * (tried.images_per_second or 0.0)

    allowed = [size for size in grid if (reckoned(size) or 0) <= limit]
    if not allowed:
        return [Tried(grid[0], False, reckoned(grid[0]), None)], "limit"
    tried = search(allowed, attempt, enough)
    if any(not each.fits for each in tried):
        return tried, "memory"
    if tried[-1].images < allowed[-1]:
        tried.append(Tried(allowed[-1], True, reckoned(allowed[-1]), None))
    return tried, "limit" if len(allowed) < len(grid) else None


class Steps:
    """Training steps of a run in `probing`, on so many images of one window, repeated.
    Weights do not change, since the rate is 0."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.device = run.device
        self._side = extreme_sizes(run.recipe.augmentation.size, run.info.image_size)[1]
        window = next(run.windows())
        self._images = torch.cat([images for images, _ in window])
        self._labels = torch.cat([labels for _, labels in window])
        last = self._images.is_contiguous(memory_format=torch.channels_last)
        self._layout = torch.channels_last if last else torch.contiguous_format

    def take(self, size: int) -> float:
        """Take one step and return its seconds."""
        started = time.perf_counter()
        chosen = torch.arange(size, device=self._labels.device) % len(self._labels)
        images = self._images[chosen].contiguous(memory_format=self._layout)
        self._run.train_on(
            [(images, self._labels[chosen])], lr=0.0, size=self._side
        ).item()  # waits for all of the step
        return time.perf_counter() - started

    def speed(self, size: int) -> float | None:
        """Return images a second, by the median of a few steps after a first one; None if memory runs out."""
        seconds: list[float] = []
        try:
            self.take(size)
            while not seconds or (sum(seconds) < TIMED_SECONDS and len(seconds) < TIMED_STEPS):
                seconds.append(self.take(size))
        except Exception as error:
            if not ran_out(error):
                raise
            return None
        return size / median(seconds)

    def on_cuda(self, size: int, limit_bytes: int | None = None) -> Tried:
        """Return whether steps on so many images fit into the device, and into the limit if there is one."""
        give_back(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        speed = self.speed(size)
        if speed is None:
            return Tried(size, False, None, None)
        peak = torch.cuda.max_memory_reserved(self.device)
        return Tried(size, limit_bytes is None or peak <= limit_bytes, peak, speed)

    def line(self, limit: int, most_images: int = MOST_IMAGES) -> MemoryLine | None:
        """Return a line for the memory of weights, also a teacher's, optimizer and a step on any number of
        images, without taking that step.

        It returns None if the smallest step runs out of memory. That step also creates the optimizer's state.
        """
        if self.speed(SMALLEST) is None:
            return None
        weights = [self._run.state_dict(), self._run.task.other_weights()]
        return draw_line(self.take, tensor_bytes(weights), limit, most_images)


def _check(limit_bytes: int | None, largest: int | None) -> None:
    if limit_bytes is not None and limit_bytes < 1:
        raise UserError(f"limit_bytes: expected at least 1, got {limit_bytes}")
    if largest is not None and largest < 1:
        raise UserError(f"largest: expected at least 1 image, got {largest}")
