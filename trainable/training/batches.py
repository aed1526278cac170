"""Cuts an epoch into effective batches, called windows here, and these into micro-batches for the memory.

Which images every step trains on is a function of the seed and the epoch alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self, final

import numpy as np
import torch
from torch import Tensor, optim

from trainable.data.batch import Batch
from trainable.ranks import Ranks
from trainable.recipe.training import Loop
from trainable.training import seeds
from trainable.training.devices import give_back, ran_out
from trainable.training.gradients import RankAgreement, Reduction
from trainable.training.imbalance import PerClass, shown_shares
from trainable.training.seeds import Use
from trainable.training.task import BatchWeight, Task


@final
class Order:
    """The order of a training part's images, by `loop.seed`, `loop.batch_size` and `loop.sampling`.

    Each epoch has as many whole windows (effective batches) as the part fills, whatever the sampling: images
    that do not fill one are left out. `labels` are those of the part, int64 [N] on the CPU.
    """

    def __init__(self, labels: Tensor, loop: Loop) -> None:
        self._labels, self._loop = labels, loop
        self.steps = len(labels) // loop.batch_size

    def windows(self, epoch: int) -> Tensor:
        """Return an epoch's windows as positions in the training part, int64 [steps, batch] on the CPU.

        A position p + N is another showing of image p, where small classes are shown more often than once.
        """
        count = self.steps * self._loop.batch_size
        generator = seeds.generator(self._loop.seed, Use.ORDER, epoch)
        if self._loop.sampling == "natural":
            chosen = torch.randperm(len(self._labels), generator=generator)[:count]
        else:
            chosen = self._sampled(count, generator)
        return chosen.view(self.steps, self._loop.batch_size)

    def weights(self, epoch: int, task: Task, device: torch.device) -> list[BatchWeight]:
        """Return the weight of each window of an epoch over all ranks; where classes have weights of their
        own, these are numbers on the device."""
        if not task.weighted:
            return [float(self._loop.batch_size)] * self.steps
        labels = self._labels[self.windows(epoch) % len(self._labels)].to(device)
        return [task.weight(each) for each in labels]

    def _sampled(self, count: int, generator: torch.Generator) -> Tensor:
        """Return positions in which each class has its share of the count, rounded up or down.

        An image of a class is shown once more than another one at most, and which one is drawn anew in every
        epoch.
        """
        held = torch.bincount(self._labels)
        times = _rounded(shown_shares(held.numpy(), self._loop.sampling) * count, generator)
        chosen = [
            self._of_class(label, number, generator) for label, number in enumerate(times) if number > 0
        ]
        return torch.cat(chosen)[torch.randperm(count, generator=generator)]

    def _of_class(self, label: int, count: int, generator: torch.Generator) -> Tensor:
        images = torch.nonzero(self._labels == label)[:, 0]
        images = images[torch.randperm(len(images), generator=generator)]
        number = torch.arange(count)
        return images[number % len(images)] + number // len(images) * len(self._labels)


def _rounded(quotas: PerClass, generator: torch.Generator) -> list[int]:
    """Round numbers up or down at random, so that their sum stays and each is right on average
    (systematic sampling, Madow 1949)."""
    ends = np.cumsum(quotas)
    ends[-1] = round(ends[-1])
    ends = np.floor(ends + torch.rand((), generator=generator, dtype=torch.float64).item())
    return [int(each) for each in np.diff(ends, prepend=0.0)]


# --- micro-batches ------------------------------------------------------------------------------------


def parts_of(loop: Loop, world: int) -> int:
    """Return into how many parts each of `world` ranks cuts its images of a window: as few as
    `loop.micro_batch` allows, alike on all, and none of them empty."""
    share, largest = loop.batch_size // world, math.ceil(loop.batch_size / world)
    return min(share, math.ceil(largest / (loop.micro_batch or largest)))


@dataclass
class MicroBatches:
    """Into how many micro-batches each rank cuts its images of a window: into more, once memory has run out.

    Effective batch and rate never change.
    """

    count: int
    most: int  # 0: memory that runs out ends the training, whatever the count of a checkpoint

    @classmethod
    def of(cls, loop: Loop, ranks: Ranks, fewest_at_once: int = 1) -> Self:
        """Return what `loop` asks for, of a network that trains on so many images at once at least."""
        count = parts_of(loop, ranks.world)
        if loop.sync_norm and ranks.world > 1:
            return cls(count, most=0)  # the other ranks wait inside a layer, where they cannot be told to cut
        # by the smallest share of a rank: all cut alike, and none has an empty part
        return cls(count, loop.batch_size // ranks.world // fewest_at_once)

    @property
    def may_be_cut(self) -> bool:
        return self.count < self.most

    def cut(self) -> None:
        self.count = min(2 * self.count, self.most)


@final
class Batches:
    """An epoch's micro-batches, which can begin again at any window, and how long one waited for them.

    `open_at(window)` returns the micro-batches from a window on, in the sizes that hold when it is called.
    """

    def __init__(
        self, open_at: Callable[[int], Iterator[Batch]], first: int = 0, waited: float = 0.0
    ) -> None:
        self._open_at = open_at
        self._batches = open_at(first)
        self.waited_seconds = waited

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        started = time.perf_counter()
        batch = next(self._batches)
        self.waited_seconds += time.perf_counter() - started
        return batch

    def back_to(self, window: int) -> None:
        """Continue from a window, counted from 0."""
        self._batches = self._open_at(window)


@dataclass
class Window:
    """An effective batch on its way through a step."""

    batches: Batches  # this rank's micro-batches of it are the next ones
    number: int  # in its epoch, from 0
    micro_batches: MicroBatches
    weight: BatchWeight  # of its images over all ranks
    size: int  # the side in pixels of its images
    generator: torch.Generator  # of its mixing: the same on every rank, so that a batch is mixed in one way


@final
class WindowAttempt:
    """A try at the backward passes of a window: inside, memory that runs out ends the try and no more."""

    def __init__(self, window: Window, reduction: Reduction) -> None:
        self._window, self._reduction = window, reduction
        self.out_of_memory = False

    def __enter__(self) -> None:
        self._reduction.begin()

    def __iter__(self) -> Iterator[Batch]:
        """Yield the micro-batches; ranks sum their gradients in the backward pass of the last one."""
        count = self._window.micro_batches.count
        for number in range(count):
            batch = next(self._window.batches)
            with self._reduction.part(last=number == count - 1):
                yield batch

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        may_be_cut = self._window.micro_batches.may_be_cut
        self.out_of_memory = isinstance(error, Exception) and ran_out(error) and may_be_cut
        return self.out_of_memory  # the error is not kept: it holds the frames that hold the memory


def attempts(
    window: Window, reduction: Reduction, optimizer: optim.Optimizer, device: torch.device
) -> Iterator[WindowAttempt]:
    """Yield attempts at the gradients of a window until ranks agree that these are summed: mostly one.

    If it does not fit into the memory of one rank, all ranks cut it into twice as many micro-batches, and so
    later windows, and begin it again, before any of its gradients are used. (BatchNorm's running statistics
    have then seen its first part twice.)
    """
    drawn = window.generator.get_state()
    while True:
        attempt = WindowAttempt(window, reduction)
        yield attempt
        if attempt.out_of_memory:
            _forget(optimizer, device)
        agreed = reduction.agree(out_of_memory=attempt.out_of_memory)
        if agreed is RankAgreement.SUMMED:
            return
        _forget(optimizer, device)
        if agreed is RankAgreement.OUT_OF_MEMORY:
            window.micro_batches.cut()
        window.generator.set_state(drawn)
        window.batches.back_to(window.number)


def _forget(optimizer: optim.Optimizer, device: torch.device) -> None:
    optimizer.zero_grad(set_to_none=True)
    give_back(device)
