"""Scores a model on a part of the data exactly, with every image once."""

from __future__ import annotations

import abc
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
import torch
from torch import Tensor, nn

from trainable.augmentation.sizes import on_grid, resized
from trainable.ranks import ALONE, Ranks
from trainable.recipe.training import Evaluation
from trainable.training.answers import Answers
from trainable.training.devices import give_back, ran_out
from trainable.training.precision import Compute

Array = np.ndarray[Any, np.dtype[Any]]

TOP_FROM_CLASSES = 11  # Top-5 accuracy says something only if there are more than ten classes


class Confused(NamedTuple):
    """How many images, or pixels, of a class were taken for another one; both are numbers of classes."""

    true: int
    predicted: int
    times: int


class Resamples(NamedTuple):
    """The scores of resamples of a part's images."""

    metrics: dict[str, Array]  # [resamples] by name
    by_class: dict[str, Array]  # [K, resamples] by name; nan where a resample has no such class


class ByImage(abc.ABC):
    """What each image of a part adds to scores that follow from sums over images: all resamples of them are a
    few matrix products."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @property
    @abc.abstractmethod
    def of_classes(self) -> Array:
        """How many images have each class, or are answered to have it, [K]."""

    @abc.abstractmethod
    def resampled(self, counts: Array) -> Resamples:
        """Return the scores of resamples, of how often each image is in each, [images, resamples]."""


@dataclass(frozen=True)
class Scores:
    """What a model scores on one part: accuracies are fractions in [0, 1], the loss is nats an image.

    `balanced_accuracy` is the mean recall over the classes that the part contains;
    `confusion[true][predicted]` counts images, unless there are too many classes, and `answers` holds what
    was answered for each image, if they were asked for. `extra` holds other metrics by name, such as
    `macro_f1`. Of masks, accuracies and `confusion` are of pixels, and `by_class` holds scores of each class
    by name, such as `iou`: None for a class that does not occur; `by_image` holds what each image adds, if
    answers were asked for.
    """

    loss: float
    accuracy: float
    balanced_accuracy: float
    top5_accuracy: float | None
    images: int
    confusion: tuple[tuple[int, ...], ...] | None = None
    extra: Mapping[str, float] = field(default_factory=dict)
    by_class: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    answers: Answers | None = field(default=None, compare=False, repr=False)
    by_image: ByImage | None = field(default=None, compare=False, repr=False)

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss)

    def most_confused(self, most: int) -> list[Confused]:
        """Return the pairs of a true class and another that was predicted, the most frequent first; none
        where neither the confusion nor the answers were asked for."""
        if self.confusion is not None:
            matrix = np.array(self.confusion)
            true, predicted = np.nonzero(matrix)
            counts = matrix[true, predicted]
        elif self.answers is not None:
            pairs = np.stack([self.answers.labels.numpy(), self.answers.predicted.numpy()])
            (true, predicted), counts = np.unique(pairs, axis=1, return_counts=True)
        else:
            return []
        wrong = np.flatnonzero(true != predicted)
        order = wrong[np.argsort(-counts[wrong], kind="stable")[:most]]
        return [Confused(int(true[at]), int(predicted[at]), int(counts[at])) for at in order]

    def metrics(self, prefix: str) -> dict[str, float]:
        """Return the scores by name, such as `test_accuracy`, without top-5 if it is not measured."""
        return {f"{prefix}_{name}": value for name, value in self.by_name().items()}

    def by_name(self) -> dict[str, float]:
        """Return the scores by name, without the part's: `loss`, `accuracy`, `macro_f1`."""
        named = {
            "loss": self.loss,
            "accuracy": self.accuracy,
            "balanced_accuracy": self.balanced_accuracy,
        }
        if self.top5_accuracy is not None:
            named["top5_accuracy"] = self.top5_accuracy
        return {**named, **self.extra}


@dataclass(frozen=True)
class View:
    """One way to look at an image: at a size (None is its own), mirrored or not."""

    size: int | None = None
    mirrored: bool = False

    def of(self, images: Tensor) -> Tensor:
        shown = images if self.size is None else resized(images, self.size)
        return shown.flip(-1) if self.mirrored else shown


PLAIN = View()


class BatchLimit:
    """How many images are computed at once: no more than fit into memory, and if it `pads`, always as many as
    before, since cuDNN prepares kernels for each new number of them, which takes seconds (0057)."""

    def __init__(self, pads: bool = False) -> None:
        self.images = sys.maxsize
        self._pads = pads
        self._largest: dict[torch.Size, int] = {}  # by the shape of one image

    def filled(self, images: Tensor) -> Tensor:
        """Repeat images until there are as many as before, if it pads."""
        if not self._pads:
            return images
        shape = images.shape[1:]
        size = self._largest[shape] = max(len(images), min(self.images, self._largest.get(shape, 0)))
        copies = math.ceil(size / len(images))
        return torch.cat([images] * copies)[:size] if copies > 1 else images  # cat keeps the memory layout


def make_views(spec: Evaluation, side: int) -> tuple[View, ...]:
    """Return a view for every scale of `evaluation.scales`, each mirrored too if `evaluation.flip` says so.

    Sizes are multiples of 32 pixels, or of 4 if images are under 64, but a scale of 1 is the image unchanged.
    Scales with the same size are one view.
    """
    asked = [side if scale == 1.0 else on_grid(scale * side, side) for scale in spec.scales]
    sizes = [None if size == side else size for size in asked]
    mirrored = (False, True) if spec.flip else (False,)
    return tuple(View(size, mirror) for size in dict.fromkeys(sizes) for mirror in mirrored)


class Tally(Protocol):
    """How a model's outputs agree with targets, summed up on the device."""

    def add(self, outputs: Tensor, targets: Tensor, /) -> None: ...

    def scores(self, ranks: Ranks = ALONE) -> Scores: ...


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    tally: Tally,
    *,
    compute: Compute,
    answer: ImageAnswer | None = None,
    limit: BatchLimit | None = None,
) -> Scores:
    """Score a model, in evaluation mode, on images [B, C, H, W] and targets [B, ...] that cover a part once.

    Each rank has its own batches and an empty tally; the sums are reduced, so that every rank returns the
    same scores. The device is read once, at the end. A batch that does not fit into memory is scored in
    halves, and so are later ones, in later calls too if they have the same `limit`. `answer` says how outputs
    are made of images; by default they are logits [B, classes].
    """
    model.eval()
    limit, answer, autocast = limit or BatchLimit(), answer or answers, compute.autocast()
    for images, targets in batches:
        tally.add(in_parts(lambda part: answer(model, part, autocast), images, limit), targets)
    return tally.scores(compute.ranks)


def in_parts(compute: Callable[[Tensor], Tensor], images: Tensor, limit: BatchLimit) -> Tensor:
    """Return what is computed of each of images [B, ...] alone, in parts whose size `limit` keeps.

    Raises what says that memory ran out if there is none for a single image.
    """
    while True:
        parts = images.split(min(limit.images, len(images)))
        try:
            return torch.cat([compute(limit.filled(part))[: len(part)] for part in parts])
        except Exception as error:
            if not ran_out(error) or len(parts[0]) == 1:
                raise
        limit.images = math.ceil(len(parts[0]) / 2)
        give_back(images.device)


def answers(
    model: nn.Module, images: Tensor, autocast: torch.autocast, views: Sequence[View] = (PLAIN,)
) -> Tensor:
    """Return logits [B, classes]; for several views, the logarithm of the mean of their probabilities."""
    seen: list[Tensor] = []
    for view in views:
        with autocast:
            seen.append(full_precision(model(view.of(images))))
    return joined(seen)


def joined(seen: Sequence[Tensor]) -> Tensor:
    """Return the logits [B, classes, ...] of one view, or the logarithm of several views' mean
    probabilities."""
    if len(seen) == 1:
        return seen[0]
    logarithms = torch.stack(list(seen)).log_softmax(2)
    return logarithms.logsumexp(0) - math.log(len(seen))


# An answer is what a model makes of images [B, C, H, W]
ImageAnswer = Callable[[nn.Module, Tensor, torch.autocast], Tensor]

# A network returns one tensor; in training perhaps several, of its main head and then of others
Outputs = Tensor | tuple[Tensor, ...]


@overload
def full_precision(outputs: Tensor) -> Tensor: ...
@overload
def full_precision(outputs: Outputs) -> Outputs: ...
def full_precision(outputs: Outputs) -> Outputs:
    """Return outputs in which a loss may be computed: half formats become fp32, fp64 stays."""
    if isinstance(outputs, tuple):
        return tuple(full_precision(each) for each in outputs)
    return outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs


def main_output(outputs: Outputs) -> Tensor:
    """Return the output of a network's main head."""
    return outputs[0] if isinstance(outputs, tuple) else outputs
