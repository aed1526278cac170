"""Tables of real learning curves as search tasks: a proposal gets the nearest row's curve."""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from offline.search_task import BareSpace, Points, SearchTask, Train, Trained, Values, data, dimension
from spaces.domains import Choice, Float, Value
from spaces.space import Dimension, When
from trainable.recipe import Recipe

FASHION_MNIST = Path(__file__).parents[1] / "tables" / "fashion_mnist_4000.jsonl"


@dataclass(frozen=True)
class Table:
    """Curves that were trained once. `rows` are a space's values, one dictionary per curve.

    Distance is Euclidean in the unit cube of the (log-)ranges; another option counts 1, another option of
    `apart` more than anything else. A dimension that only one of two points has adds nothing, because the
    option that brings it differs already.
    """

    space: BareSpace
    rows: Sequence[Trained]
    apart: str | None = None

    def begin(self) -> Train:
        """Give each trial the nearest row that no trial of this search has had."""
        left = np.ones(len(self.rows), bool)

        def train(values: Values) -> Trained:
            distances = self._distances(self._positions([values])[0])
            nearest = int(np.argmin(np.where(left, distances, np.inf)))
            if not left[nearest]:
                raise ValueError(f"all {len(self.rows)} rows have been tried: the budget is too large")
            left[nearest] = False
            return self.rows[nearest]

        return train

    @cached_property
    def _row_positions(self) -> Points:
        return self._positions([row.values for row in self.rows])

    def _positions(self, rows: Sequence[Values]) -> Points:
        """Return one line per row; what a row lacks is NaN."""
        encoded = [self.space.encode(values) for values in rows]
        names = [each.name for each in self.space.dimensions]
        return np.array([[row.get(name, np.nan) for name in names] for row in encoded])

    def _distances(self, position: Points) -> Points:
        differences = np.nan_to_num(self._row_positions - position) ** 2
        for column, each in enumerate(self.space.dimensions):
            if isinstance(each.domain, Choice):
                weight = len(self.space.dimensions) if each.path == self.apart else 1.0
                differences[:, column] = weight * (differences[:, column] > 0)
        distances: Points = differences.sum(axis=1)
        return distances


def taskset() -> SearchTask:
    """Return the task of an LSTM's negated validation loss under 1,000 settings of Adam.

    The table is TaskSet's (arXiv 2002.11887). It has 51 evaluations, the first before any training, so the
    first rung is the third. Losses that are not finite end a run. The two betas are searched as 1 - beta,
    over decades.
    """
    ranges = {
        "learning_rate": (1e-8, 10.0),
        "one_minus_beta1": (1e-4, 1.0),
        "one_minus_beta2": (1e-6, 1.0),
        "epsilon": (1e-10, 1e3),
        "l1": (1e-8, 10.0),
        "l2": (1e-8, 10.0),
        "linear_decay": (1e-7, 1e-4),
        "exponential_decay": (1e-6, 1e-3),
    }
    space = BareSpace(
        Recipe(), tuple(dimension(path, Float(*ends, log=True)) for path, ends in ranges.items()), own={}
    )
    with lzma.open(data() / "curves" / "taskset_lstm128.json.xz") as table:
        found = json.load(table)
    rows = [Trained(_adam(each["hp"]), _until_diverged(each["valid"]["loss"])) for each in found]
    return _of_table("taskset", Table(space, rows), epochs=51, grace=3)


def _adam(found: Mapping[str, float]) -> dict[str, Value]:
    values: dict[str, Value] = {name: value for name, value in found.items() if not name.startswith("beta")}
    return {**values, "one_minus_beta1": 1 - found["beta1"], "one_minus_beta2": 1 - found["beta2"]}


def _until_diverged(losses: Sequence[float]) -> list[float]:
    end = next((epoch for epoch, loss in enumerate(losses) if not math.isfinite(loss)), len(losses))
    return [-loss for loss in losses[:end]]


def fashion_mnist() -> SearchTask:
    """Return the task of ResNet-8's validation accuracy under 256 recipes, drawn in the box below.

    Warm-ups last up to 3 of the 9 epochs, so the first rung is the third.
    """
    lines = [json.loads(line) for line in FASHION_MNIST.read_text().splitlines()]
    rows = [Trained(each["values"], [accuracy for accuracy, _ in each["curve"]]) for each in lines]
    space = BareSpace(Recipe(), tuple(_recipe_dimensions()), own={})
    return _of_table("fashion-mnist", Table(space, rows, apart="optimizer.kind"), epochs=9, grace=3)


def _recipe_dimensions() -> Iterator[Dimension]:
    yield dimension("optimizer.kind", Choice(("sgd", "adamw")))
    for kind, rate, decay in (("sgd", (1e-4, 10.0), (1e-6, 1e-2)), ("adamw", (1e-5, 1.0), (1e-5, 1.0))):
        this = When("optimizer.kind", (kind,))
        yield dimension("optimizer.lr", Float(*rate, log=True), this, kind)
        yield dimension("optimizer.weight_decay", Float(*decay, log=True), this, kind)
    yield dimension("optimizer.momentum", Float(0.5, 0.99), When("optimizer.kind", ("sgd",)))
    yield dimension("schedule.kind", Choice(("cosine", "poly", "onecycle", "constant")))
    yield dimension(
        "schedule.warmup_epochs", Float(0.0, 3.0), When("schedule.kind", ("cosine", "poly", "constant"))
    )
    yield dimension("regularisation.label_smoothing", Float(0.0, 0.3))
    yield dimension("augmentation.crop.kind", Choice(("none", "pad")))


def _of_table(name: str, table: Table, epochs: int, grace: int) -> SearchTask:
    best = max(row.curve[-1] for row in table.rows if len(row.curve) == epochs)
    return SearchTask(name, table.space, epochs, grace, lambda: best, table.begin)
