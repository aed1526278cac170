"""Remembers what a teacher answers to training images that epochs show again just as they were.

That is every epoch where nothing random touches the images, and else the frozen ones, where
`model.frozen_views` shows them in a few fixed ways. Everywhere else the teacher is asked anew in each step.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import final

import torch
from torch import Tensor

from trainable.augmentation.draws import moved
from trainable.data.batch import Batch
from trainable.data.info import DataInfo
from trainable.files.host_memory import fits_on_host
from trainable.recipe import Recipe
from trainable.training.evaluate import BatchLimit, in_parts
from trainable.training.pixels import augments, views_of
from trainable.training.precision import Compute
from trainable.training.task import Read

logger = logging.getLogger(__name__)


@final
class TaughtBatch(tuple[Tensor, Tensor]):
    """A batch of images and labels, with what the teacher answered to these images before."""

    answers: Tensor

    @classmethod
    def of(cls, batch: tuple[Tensor, Tensor], answers: Tensor) -> TaughtBatch:
        found = cls(batch)
        found.answers = answers
        return found


@final
class TeacherAnswers:
    """A teacher's answers: `ask` is called once for each image of each view, when an epoch first shows it.

    The answers are a function of the recipe and the data alone, so that resuming equals never stopping:
    images are read in fixed blocks, of which each rank computes a share. They take images * views * answers *
    4 bytes on the host; where memory is short on a rank, all ranks ask in each step, and the log says so. In
    the last digits, answers to a block may differ from those to a batch.
    """

    def __init__(
        self,
        recipe: Recipe,
        info: DataInfo,
        ask: Callable[[Tensor], Tensor],
        compute: Compute,
        read: Read,
    ) -> None:
        self._info, self._ask, self._device = info, ask, compute.device
        self._ranks, self._read = compute.ranks, read
        self._limit = BatchLimit(pads=compute.device.type == "cuda")
        self._block = recipe.evaluation.batch_size
        self._epochs, self._views = _epochs_and_views(recipe, info)
        self._answers: dict[int, Tensor] = {}

    def of(self, epoch: int) -> Tensor | None:
        """Return the answers [N, ...] to all training images as an epoch, counted from 0, shows them, on the
        host; None where they are not remembered. All ranks call this together."""
        if epoch >= self._epochs:
            self._answers.clear()
            return None
        view = epoch % self._views
        if view not in self._answers:
            found = self._computed(view)
            if found is None:
                self._epochs = 0
                return None
            self._answers[view] = found
        return self._answers[view]

    def beside(self, batches: Iterator[Batch], order: Sequence[Tensor], epoch: int) -> Iterator[Batch]:
        """Return an epoch's batches, whose positions are `order`, with the answers to each where they are
        remembered. Position p + N is image p again."""
        answers = self.of(epoch)
        return batches if answers is None else _with_answers(batches, order, answers)

    def _computed(self, view: int) -> Tensor | None:
        """Return the answers to all images of a view; None on every rank if one lacks the memory."""
        count = self._info.train_images
        side = self._info.image_size
        blank = torch.zeros(1, self._info.channels, side, side, device=self._device)
        row = self._ask(blank).to("cpu")
        (short,) = self._ranks.any_of([not self._fits(row)])
        if short:
            return None
        answers = row.new_zeros(count, *row.shape[1:])
        blocks = torch.arange(count).tensor_split(math.ceil(count / self._block))
        mine = blocks[self._ranks.rank :: self._ranks.world]
        for rows, (images, _) in zip(mine, self._read(mine, view), strict=True):
            answers[rows] = in_parts(self._ask, images, self._limit).to("cpu")
        return self._ranks.reduce(answers) if self._ranks.world > 1 else answers

    def _fits(self, row: Tensor) -> bool:
        return fits_on_host("the teacher's answers", self._info.train_images * self._views * row.nbytes)


def _epochs_and_views(recipe: Recipe, info: DataInfo) -> tuple[int, int]:
    """Return how many epochs, from the first on, show images in views that come again, and how many views;
    no epoch where each view is shown once."""
    augmentation, epochs = recipe.augmentation, recipe.loop.epochs
    if augmentation.mixing.kind != "none" or augmentation.size.kind != "fixed":
        return 0, 1
    if augments(recipe, info):
        epochs = min(epochs, recipe.model.freeze_epochs)
    views = views_of(recipe, info)
    return (0, 1) if views is None or views >= epochs else (epochs, views)


def _with_answers(batches: Iterator[Batch], order: Sequence[Tensor], answers: Tensor) -> Iterator[Batch]:
    for batch, positions in zip(batches, order, strict=True):
        rows = answers[positions % len(answers)]
        yield TaughtBatch.of(batch, moved(rows, batch[0].device))
