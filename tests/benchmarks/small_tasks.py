"""A search task small enough to reckon by hand."""

from __future__ import annotations

from offline.curve_tables import Table
from offline.search_task import BareSpace, SearchTask, Trained, Values, dimension
from spaces.domains import Choice, Float, Value
from spaces.space import When
from trainable.recipe import Recipe

SPACE = BareSpace(
    Recipe(),
    (
        dimension("optimizer.kind", Choice(("sgd", "adamw"))),
        dimension("optimizer.lr", Float(1e-4, 1.0, log=True), When("optimizer.kind", ("sgd",)), "sgd"),
        dimension("optimizer.lr", Float(1e-6, 1e-2, log=True), When("optimizer.kind", ("adamw",)), "adamw"),
        dimension("momentum", Float(0.0, 0.9), When("optimizer.kind", ("sgd",))),
    ),
    own={},
)
EPOCHS = 9


def sgd(lr: float, momentum: float = 0.0) -> dict[str, Value]:
    return {"optimizer.kind": "sgd", "optimizer.lr": lr, "momentum": momentum}


def adamw(lr: float) -> dict[str, Value]:
    return {"optimizer.kind": "adamw", "optimizer.lr": lr}


def straight(values: Values, final: float, epochs: int = EPOCHS) -> Trained:
    """A curve that rises evenly to its final score, cut short where the run diverges after `epochs`."""
    return Trained(values, [final * (epoch + 1) / EPOCHS for epoch in range(epochs)])


def task_of(rows: list[Trained], apart: str | None = "optimizer.kind") -> SearchTask:
    """A task over a table; its best final score is the table's."""
    best = max(row.curve[-1] for row in rows if len(row.curve) == EPOCHS)
    return SearchTask(
        "small", SPACE, EPOCHS, grace=1, best=lambda: best, begin=Table(SPACE, rows, apart).begin
    )


def bowl(count: int = 400) -> SearchTask:
    """Best at a rate of 0.01 of sgd without momentum; AdamW is worse, and sgd diverges at high rates."""
    rows = []
    for number in range(count):
        share = (number + 0.5) / count
        lr = 10 ** (-4 + 4 * share)
        epochs = 3 if lr > 0.1 else EPOCHS
        rows.append(straight(sgd(lr, 0.9 * (number * 7 % count) / count), 1 - abs(share - 0.5), epochs))
        rows.append(straight(adamw(lr / 100), 0.4 - share / 10))
    return task_of(rows)
