"""Scores networks on the parts of a run's data set, each rank a share of the images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import final

import torch
from torch import Tensor, nn

from trainable.data import DataSet, Split
from trainable.data.loading import Batch
from trainable.data.source import Integers
from trainable.models.cut import head_layers
from trainable.ranks import Ranks
from trainable.recipe import Recipe
from trainable.recipe.speeds import Format
from trainable.training import precision
from trainable.training.answers import Rows
from trainable.training.compiling import eagerly
from trainable.training.evaluate import Room, Scores, evaluate, make_views
from trainable.training.extra_metrics import ExtraMetrics
from trainable.training.task import Task


@final
class Scoring:
    """Scores networks as `recipe.evaluation` says; `read` yields a part's images at some positions, in
    batches of `evaluation.batch_size`, as the network takes them."""

    def __init__(
        self,
        recipe: Recipe,
        data: DataSet,
        *,
        task: Task,
        extra_metrics: ExtraMetrics,
        ranks: Ranks,
        device: torch.device,
        number_format: Format,
        read: Callable[[Split, Integers], Iterator[Batch]],
    ) -> None:
        self._recipe, self._data, self._task, self._ranks = recipe, data, task, ranks
        self._extra_metrics, self._device, self._read = extra_metrics, device, read
        self._autocast = precision.autocast(number_format, device)
        self._room = Room()
        self._views = make_views(recipe.evaluation, data.info.image_size)

    def part(
        self,
        model: nn.Module,
        part: Split,
        *,
        confusion: bool = False,
        answers: bool = False,
        features: Iterator[Batch] | None = None,
    ) -> Scores:
        """Returns the scores of a whole part, with the extra metrics; BatchNorm is ready before.

        With `features`, those of the part in batches of its order, the network's head alone computes them.
        """
        everything = torch.arange(len(self._data.parts[part]))
        rows = answers or bool(self._extra_metrics)
        scores = self._of(model, part, everything, confusion=confusion, answers=rows, features=features)
        return self._extra_metrics.added_to(scores, keep=answers)

    def some(self, model: nn.Module, part: Split, positions: Tensor) -> Scores:
        """Returns the scores of the images at some positions, int64 [n], without the extra metrics."""
        return self._of(model, part, positions)

    def _of(
        self,
        model: nn.Module,
        part: Split,
        positions: Tensor,
        *,
        confusion: bool = False,
        answers: bool = False,
        features: Iterator[Batch] | None = None,
    ) -> Scores:
        size = min(self._recipe.evaluation.batch_size, self._task.most_at_once)
        mine = self._ranks.batches_of(positions, size)
        rows = Rows.of(self._ranks, len(positions), size, self._device) if answers else None
        with eagerly(self._recipe.loop.compile):
            return evaluate(
                model if features is None else head_layers(model),
                self._read(part, mine.numpy()) if features is None else features,
                self._task.tally(self._device, confusion, rows),
                autocast=self._autocast,
                views=self._views,
                ranks=self._ranks,
                room=self._room,
                answer=self._task.answer,
            )
