"""What is asked of a kind of task before a run: its images, their loader, what is learnt of them."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from trainable.bench import HERE, Bench
from trainable.data import DataInfo, DataSet
from trainable.data.loading import Loader
from trainable.data.parts import Members
from trainable.recipe import Recipe
from trainable.training.extra_metrics import ExtraMetrics
from trainable.training.task import Task

HeadLoss = Callable[[Tensor], Tensor]  # of the output of one head of a network


class Kit(abc.ABC):
    """The answers of one kind of task; `trainable.tasks.kits` says which one a recipe has."""

    task_class: ClassVar[type[Task]]

    @abc.abstractmethod
    def load(self, recipe: Recipe, bench: Bench, *, most_bytes: int | None = None) -> DataSet:
        """Load the images of a recipe with what is to be learnt of them, split, measured and checked.

        Images behind a URI are copied to this machine first, once. They are not held in memory if they take
        more than `most_bytes`. Raises DataError for whatever cannot be used, with all broken images.
        """

    @abc.abstractmethod
    def stored_parts(self, recipe: Recipe, bench: Bench = HERE) -> tuple[Members, tuple[str, ...]]:
        """Return the images of each part as they are stored, in the order of the part, and the classes'
        names. Raises DataError as `load` does."""

    @abc.abstractmethod
    def stored_side(self, recipe: Recipe, bench: Bench = HERE) -> int | None:
        """Return the median shorter side in pixels of a sample of the training images, as they are stored;
        None if none opens. Raises DataError as `load` does."""

    @abc.abstractmethod
    def loader(self, data: DataSet, recipe: Recipe, bench: Bench) -> Loader:
        """Return what makes batches of the images, for a run on the bench."""

    @abc.abstractmethod
    def task(
        self, recipe: Recipe, info: DataInfo, device: torch.device, extra: ExtraMetrics | None = None
    ) -> Task:
        """Return what is learnt from the images that `info` describes.

        `extra` is for a task that measures metrics itself (`Task.measures_itself`); others leave it out, as
        theirs are measured of their answers.
        """

    @abc.abstractmethod
    def loss_of_noise(self, images: Tensor, info: DataInfo) -> HeadLoss:
        """Return the cross-entropy of images [B, C, H, W] that show nothing, with made-up labels, for steps
        that are timed."""
