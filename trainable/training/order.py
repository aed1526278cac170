"""Chooses which images every step of an epoch trains on, as a function of the seed and the epoch alone."""

from __future__ import annotations

import math
from typing import final

import numpy as np
import torch
from torch import Tensor

from trainable.recipe.training import Loop
from trainable.training import seeds
from trainable.training.imbalance import Counts, shown_shares
from trainable.training.seeds import Use
from trainable.training.task import Task, Weight


def parts_of(loop: Loop, world: int) -> int:
    """Return into how many parts each of `world` ranks cuts its images of a window: as few as
    `loop.micro_batch` allows, alike on all, and none of them empty."""
    share, largest = loop.batch_size // world, math.ceil(loop.batch_size / world)
    return min(share, math.ceil(largest / (loop.micro_batch or largest)))


@final
class Order:
    """Orders the images of a training part for `loop.seed`, `loop.batch_size` and `loop.sampling`.

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

    def weights(self, epoch: int, task: Task, device: torch.device) -> list[Weight]:
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


def _rounded(quotas: Counts, generator: torch.Generator) -> list[int]:
    """Round numbers up or down at random, so that their sum stays and each is right on average
    (systematic sampling, Madow 1949)."""
    ends = np.cumsum(quotas)
    ends[-1] = round(ends[-1])
    ends = np.floor(ends + torch.rand((), generator=generator, dtype=torch.float64).item())
    return [int(each) for each in np.diff(ends, prepend=0.0)]
