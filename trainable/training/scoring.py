"""Scores networks on the parts of a run's data set, each rank a share of the images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from trainable.array_types import Integers
from trainable.data.arrays import as_tensor
from trainable.data.batch import Batch
from trainable.data.info import DataInfo
from trainable.data.parts import Part
from trainable.errors import DataError
from trainable.models.groups import head_layers
from trainable.ranks import ALONE, Ranks
from trainable.recipe import Recipe
from trainable.recipe.data import Split
from trainable.stages import Stage, counting
from trainable.training import seeds
from trainable.training.answers import RankRows
from trainable.training.compiling import eagerly
from trainable.training.evaluate import BatchLimit, Scores, Tally, evaluate, make_views
from trainable.training.extra_metrics import ExtraMetrics
from trainable.training.precision import Compute
from trainable.training.task import Task

# Takes the positions in a part, int64 [B], of a batch's images, and what is answered to them, as a tally
# takes it: logits [B, classes] or [B, classes, H, W], on the device
Take = Callable[[Integers, Tensor], None]

# So many training images are scored at the end of a run: the standard error of their accuracy is 1.1 points
# at most
TRAIN_IMAGES = 2_000


class ReadParts(NamedTuple):
    """The parts of a data set, and how their images are read: those at some positions of a part, in batches
    of a size, as the network takes them."""

    parts: Mapping[Split, Part]
    read: Callable[[Split, Integers, int], Iterator[Batch]]


@final
class Scoring:
    """The scoring of networks as `recipe.evaluation` says. Every `take` sees the answers of this rank
    alone."""

    def __init__(
        self,
        recipe: Recipe,
        info: DataInfo,
        data: ReadParts,
        *,
        task: Task,
        extra_metrics: ExtraMetrics,
        compute: Compute,
    ) -> None:
        self._recipe, self._info, self._parts = recipe, info, data.parts
        self._task, self._extra_metrics, self._compute, self._read = task, extra_metrics, compute, data.read
        # images of different sizes are answered in different numbers of windows
        self._limit = BatchLimit(
            pads=compute.device.type == "cuda" and data.parts["validation"].sizes is None
        )
        views = make_views(recipe.evaluation, info.image_size)
        self._answer = partial(task.answer, views=views)

    def check_has(self, part: Split) -> None:
        """Raise DataError if there is no such part."""
        if part not in self._parts:
            raise DataError(f"data.path {self._info.path}: there is no {part} part to score")

    def part(
        self,
        model: nn.Module,
        part: Split,
        *,
        confusion: bool = False,
        answers: bool = False,
        take: Take | None = None,
        positions: Integers | None = None,
    ) -> Scores:
        """Return the scores of a part, with the extra metrics; BatchNorm is ready before.

        By default all images are scored, otherwise those at some rising `positions`, in this order.
        """
        chosen = torch.arange(len(self._parts[part])) if positions is None else as_tensor(positions)
        mine, order, size = self._in_batches(part, chosen)
        tally = self._tally(order, size, confusion=confusion, answers=answers)
        if take is not None:
            tally = _Watched(tally, mine, take)
        with counting("image", len(mine)) as scored:
            scores = self._evaluated(model, _counted(self._read(part, mine, size), scored), tally)
        return self._extra_metrics.added_to(scores, keep=answers)

    def of_features(self, model: nn.Module, part: Split, features: Iterator[Batch]) -> Scores:
        """Return the scores of a whole part, with the extra metrics: the network's head alone computes them,
        from the part's features in batches of its order."""
        _, order, size = self._in_batches(part, torch.arange(len(self._parts[part])))
        scores = self._evaluated(head_layers(model), features, self._tally(order, size))
        return self._extra_metrics.added_to(scores, keep=False)

    def _tally(self, order: Tensor, size: int, *, confusion: bool = False, answers: bool = False) -> Tally:
        rows = None
        if answers or (self._extra_metrics and not self._task.measures_itself):
            logits = self._extra_metrics.needs_probabilities
            rows = RankRows.of(self._compute.ranks, order, size, self._compute.device, logits=logits)
        return self._task.tally(self._compute.device, confusion, rows)

    def some(self, model: nn.Module) -> Scores:
        """Return the scores of TRAIN_IMAGES training images or as many as validate, without the extra
        metrics."""
        info, seed = self._info, self._recipe.loop.seed
        chosen = seeds.sample(seed, info.train_images, max(TRAIN_IMAGES, info.validation_images))
        positions, _, size = self._in_batches("train", chosen)
        return self._evaluated(
            model, self._read("train", positions, size), self._task.tally(self._compute.device)
        )

    def _in_batches(self, part: Split, positions: Tensor) -> tuple[Integers, Tensor, int]:
        """Return this rank's share of some positions, the order in which all of them are read, and how many
        are read at once."""
        size = min(self._recipe.evaluation.batch_size, self._task.most_at_once)
        order = _by_size(self._parts[part], positions)
        return self._compute.ranks.batches_of(positions[order], size).numpy(), order, size

    def _evaluated(self, model: nn.Module, batches: Iterator[Batch], tally: Tally) -> Scores:
        with eagerly(self._recipe.loop.compiles):
            return evaluate(
                model, batches, tally, compute=self._compute, answer=self._answer, limit=self._limit
            )


def _counted(batches: Iterator[Batch], scored: Stage) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        scored.done += len(batch[0])


def _by_size(part: Part, positions: Tensor) -> Tensor:
    """Return the order, int64 [n], in which images at some positions are read: those of one size together,
    as a batch of whole images needs them; other parts' images are of one size."""
    if part.sizes is None:
        return torch.arange(len(positions))
    heights, widths = part.sizes[positions.numpy()].T
    return as_tensor(np.lexsort((widths, heights)))


@final
class _Watched:
    """A tally that also shows the answers to `take`, with the positions of their images."""

    def __init__(self, tally: Tally, positions: Integers, take: Take) -> None:
        self._tally, self._positions, self._take, self._seen = tally, positions, take, 0

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        self._tally.add(outputs, targets)
        self._take(self._positions[self._seen : self._seen + len(targets)], outputs)
        self._seen += len(targets)

    def scores(self, ranks: Ranks = ALONE) -> Scores:
        return self._tally.scores(ranks)
