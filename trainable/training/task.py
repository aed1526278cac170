"""Defines what a run learns: how outputs are compared with targets, in training and in scoring.

The training step and evaluation know a Task, not what outputs and targets mean. docs/tasks.md says how one is
added.
"""

from __future__ import annotations

import abc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainable.augmentation.sizes import resized
from trainable.data.batch import Batch
from trainable.recipe import Recipe
from trainable.recipe import augmentations as specs
from trainable.training.answers import RankRows
from trainable.training.evaluate import Outputs, Scores, Tally, View, answers
from trainable.training.precision import Compute

BatchWeight = float | Tensor  # a weight is a number of images, or a number without dimensions on the device

# A mixing maps (images [B, C, H, W], targets, generator on the CPU) to mixed images and targets; it takes one
# draw from the generator
BatchMixing = Callable[[Tensor, Tensor, torch.Generator], tuple[Tensor, Tensor]]

# A read maps (blocks of positions, view) to the images there, as the network takes them, augmented so
Read = Callable[[Sequence[Tensor], int], Iterator[Batch]]


class Compared(NamedTuple):
    """The logits of a student and of its teacher for the same images, in one size."""

    student: Tensor  # [B, K], or [B, K, h, w] with an answer for each pixel
    teacher: Tensor
    truth: Tensor  # the true classes, int64 [B] or [B, h, w]; those that do not count may be any number
    counted: Tensor | None = None  # True where a pixel counts, [B, h, w]; None where all do


# A comparison maps (output of the network's main head, targets, the teacher's logits) to both logits
Comparison = Callable[[Tensor, Tensor, Tensor], Compared]


class TrainingBatch(NamedTuple):
    """A micro-batch as the network is shown it."""

    raw: Batch  # as it was read: before images are resized and mixed
    inputs: Tensor  # images [B, C, H, W], or features of them
    targets: Tensor  # of the inputs
    answers: Tensor | None = None  # what a teacher says of the inputs


class Task(abc.ABC):
    """What one kind of learning provides to the training loop."""

    classes: int
    weighted: bool = False  # whether some images count more than others in the loss
    # So many images are scored together at most, whatever `evaluation.batch_size` is
    most_at_once: int = sys.maxsize
    # Whether the tally measures extra metrics, too, for which others need the answers
    measures_itself: bool = False
    # Extra scores of its own tally by which parts are compared, beside the accuracy: also as `clean_train_*`
    compared: tuple[str, ...] = ()

    @property
    @abc.abstractmethod
    def guessing(self) -> float:
        """The loss of a model that knows nothing."""

    @abc.abstractmethod
    def loss(self, outputs: Outputs, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch, on the device; a weighted mean if the task is weighted."""

    def weight(self, targets: Tensor) -> BatchWeight:
        """Return how much a batch with these targets, not mixed, counts in a mean over several batches."""
        return float(len(targets))

    def weights(self, targets: Tensor) -> Tensor | None:
        """Return how much each image of a batch, not mixed, counts in its loss, [B]; None if all count
        alike."""
        return None

    def comparison(self) -> Comparison | None:
        """Return how a teacher's logits are compared with the network's; None where its outputs are no
        logits of classes, so that it can learn a teacher's features alone."""
        return None

    def learner(self, model: nn.Module) -> nn.Module:
        """Return what a run trains: its model, or that with what learns beside it."""
        return model

    def read_ahead(self, recipe: Recipe, compute: Compute, read: Read) -> None:
        """Take the read of a run's training images, of which a task may keep what epochs need again."""
        return

    def takes_features(self, epoch: int) -> bool:
        """Return whether an epoch, counted from 0, may be given features of a frozen body."""
        return True

    def beside(self, batches: Iterator[Batch], order: Sequence[Tensor], epoch: int) -> Iterator[Batch]:
        """Return an epoch's batches, whose positions are `order`, with what is known of their images."""
        return batches

    def prepared(self, batch: TrainingBatch) -> TrainingBatch:
        """Return a batch with what the loss needs of it; called before the network computes anything."""
        return batch

    def loss_of(self, batch: TrainingBatch, outputs: Outputs) -> Tensor:
        """Return the mean loss of a prepared batch, given the outputs of the learner."""
        return self.loss(outputs, batch.targets)

    def other_weights(self) -> Mapping[str, Tensor]:
        """Return the weights of networks that the task asks beside the one that is trained."""
        return {}

    def teacher_digests(self) -> tuple[str | None, str | None]:
        """Return the digests of a teacher's weights and of its recipe; None for what there is not."""
        return None, None

    def take_teacher_seconds(self) -> float | None:
        """Return how long a teacher has answered since this was last called; None without one."""
        return None

    def state_dict(self) -> dict[str, Any] | None:
        """Return what a resumed run needs of the task: tensors and plain values; None for nothing."""
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from such a state. Raises ValueError where the task has none."""
        raise ValueError(f"{type(self).__name__} keeps no state")

    @abc.abstractmethod
    def right(self, output: Tensor, targets: Tensor) -> Tensor:
        """Return how right each answer of a batch is, [B], in [0, 1]; on the device. Its mean is
        `train_accuracy`.

        `output` is that of the network's main head.
        """

    @abc.abstractmethod
    def mixing(self, spec: specs.Mixing) -> BatchMixing | None:
        """Return the mixing that a recipe asks for, or None for none."""

    def resized(self, images: Tensor, targets: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Return a batch whose images are squares of `size` pixels, with the targets of these."""
        return resized(images, size), targets

    def answer(
        self, model: nn.Module, images: Tensor, autocast: torch.autocast, views: Sequence[View]
    ) -> Tensor:
        """Return what a model answers to images [B, C, H, W] in evaluation, over all views, as the tally
        takes it."""
        return answers(model, images, autocast, views)

    @abc.abstractmethod
    def tally(self, device: torch.device, confusion: bool = False, rows: RankRows | None = None) -> Tally:
        """Return an empty tally of scores; with `rows` it keeps the answer to each image."""

    @abc.abstractmethod
    def worst(self, images: int = 0) -> Scores:
        """Return the finite scores that stand for a model which is lost."""
