"""Writes the results of benchmarks/pruning.py as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from report import described
from search.deciding.pruning_replay import WORKERS

AFTER = (1, 2, 3, 5)
TRIALS = (16, 48)

TEXT = """\
# How hard trials may be pruned

ResNet-8 on 4,000 Fashion-MNIST images, 9 epochs: {wide} recipes drawn evenly over a wide box (`wide`; with
warm-ups up to 3 epochs), {rules} around the documents' rules (`rules`; up to 0.9), and of these the {smooth}
whose schedule is a cosine or a power (`rules, one shape`). BatchNorm's statistics are measured before each
score. [Decision 0009](../../docs/decisions/0009-pruning-that-fits.md) says what follows.

## What an epoch's score says of the last one

Spearman's rank correlation with the final accuracy, with 95 % bootstrap intervals over the recipes; of all
recipes, and of those that end in the best third, between which a search has to choose.

{correlations}

## Are rungs fair between schedules?

How much higher a schedule's recipes stand in the end than after an epoch, as a share of all recipes of the
half (+0.10: they overtake a tenth of them), with 95 % bootstrap intervals; and the correlation among recipes
of one schedule (the mean over schedules) beside that of all.

{schedules}

{within}

## ASHA replayed

{orders} orders of the recipes, {workers} trials at a time. In a cell: the share of all epochs that is
trained; by how many points the best final accuracy is less than without pruning; and **the search's worth**:
so many in a hundred of its trials, all trained to the end, have as good a best one on average.

{grids}
## Longer runs: LCBench

The surrogate of LCBench on nine tasks, 52 epochs, {draws} draws a task: even ones, and from priors of medium
and of high confidence around the best of 25 even ones. In a cell: the share of all epochs, **the worth**, and
the worst task's worth. {lcbench_orders} orders.

{lcbench}
## Compared once, or again?

Trials that are alike: the table's recipes around the rules, 40 draws of the space `document` on 1,442
photographs over 20 epochs (document_draws.py), and LCBench's draws from priors of medium confidence.

{again}

## What the product chooses

For the table's recipes, with their longest warm-ups; 95 % intervals over {tables} tables resampled from them.

{chosen}

{environment}"""


def page(record: dict[str, Any]) -> str:
    """Return the whole page."""
    return TEXT.format(
        wide=record["recipes"]["wide"],
        rules=record["recipes"]["rules"],
        smooth=record["recipes"]["rules, one shape"],
        orders=f"{record['orders']:,}",
        lcbench_orders=record["lcbench_orders"],
        workers=WORKERS,
        draws=record["lcbench_draws"],
        tables=record["resampled_tables"],
        correlations=_table(_correlation_head(record), _correlation_rows(record)),
        schedules=_table(
            ["half", "schedule", "recipes", *(f"after {epoch}" for epoch in AFTER)], _schedule_rows(record)
        ),
        within=_table(["half", "recipes of", *(f"after {epoch}" for epoch in AFTER)], _within_rows(record)),
        grids="\n".join(_grid(record, half, trials) for half in record["grid"] for trials in TRIALS),
        lcbench="\n".join(
            _lcbench(record, prior, trials) for prior in record["lcbench"] for trials in TRIALS
        ),
        again=_table(
            ["recipes", "trials", "rungs", "one in", "share of epochs", "worth"], _again_rows(record)
        ),
        chosen=_table(
            ["recipes", "trials", "rungs", "one in", "share of epochs", "points lost", "worth"],
            _chosen_rows(record),
        ),
        environment=described(record["environment"]),
    )


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|-" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def _correlation_head(record: dict[str, Any]) -> list[str]:
    return ["epoch", *(f"{name}{which}" for name in record["correlations"] for which in ("", "; best third"))]


def _correlation_rows(record: dict[str, Any]) -> Iterator[list[str]]:
    for cells in zip(*record["correlations"].values(), strict=True):
        figures = [_with_interval(cell[which]) for cell in cells for which in ("all", "best third")]
        yield [str(cells[0]["epoch"]), *figures]


def _schedule_rows(record: dict[str, Any]) -> Iterator[list[str]]:
    for half, schedules in record["schedules"].items():
        for kind, found in schedules["kinds"].items():
            rises = [_with_interval(found["rise"][epoch - 1], sign="+") for epoch in AFTER]
            yield [half, kind, str(found["recipes"]), *rises]


def _within_rows(record: dict[str, Any]) -> Iterator[list[str]]:
    for half, schedules in record["schedules"].items():
        found = schedules["within"]
        yield [half, "one schedule", *(f"{found[epoch - 1]:.2f}" for epoch in AFTER)]
        every = record["correlations"][half]
        yield [half, "any schedule", *(f"{every[epoch - 1]['all'][0]:.2f}" for epoch in AFTER)]


def _grid(record: dict[str, Any], half: str, trials: int) -> str:
    cells = {
        (cell["grace"], cell["factor"]): f"{cell['spent']:.2f}, {100 * cell['regret']:.2f}, "
        f"**{100 * cell['worth']:.0f}**"
        for cell in record["grid"][half]
        if cell["trials"] == trials
    }
    return _by_grace(f"`{half}`, {trials} trials:", cells)


def _lcbench(record: dict[str, Any], prior: str, trials: int) -> str:
    cells = {
        (cell["grace"], cell["factor"]): f"{cell['spent']:.2f}, **{100 * cell['worth']:.0f}**, "
        f"{100 * cell['least']:.0f}"
        for cell in record["lcbench"][prior]
        if cell["trials"] == trials
    }
    title = "Even draws" if prior == "even" else f"Priors of {prior} confidence"
    return _by_grace(f"{title}, {trials} trials:", cells)


def _by_grace(title: str, cells: dict[tuple[int, int], str]) -> str:
    graces, factors = (list(dict.fromkeys(key[position] for key in cells)) for position in (0, 1))
    rows = ([str(grace), *(cells[grace, factor] for factor in factors)] for grace in graces)
    head = ["first rung", *(f"1 in {factor} goes on" for factor in factors)]
    return f"{title}\n\n{_table(head, rows)}\n"


def _again_rows(record: dict[str, Any]) -> Iterator[list[str]]:
    for cell in record["again"]:
        of = [cell["recipes"], str(cell["trials"]), ", ".join(map(str, cell["rungs"])), str(cell["factor"])]
        yield [*of, f"{cell['spent']:.2f}", f"{100 * cell['worth']:.0f}"]


def _chosen_rows(record: dict[str, Any]) -> Iterator[list[str]]:
    for name, cells in record["chosen"].items():
        for cell in cells:
            yield [
                name,
                str(cell["trials"]),
                ", ".join(map(str, cell["rungs"])),
                str(cell["factor"]),
                _with_interval(cell["spent"]),
                _with_interval([100 * value for value in cell["regret"]]),
                _with_interval([100 * value for value in cell["worth"]], digits=0),
            ]


def _with_interval(found: Sequence[float], sign: str = "", digits: int = 2) -> str:
    """Return a figure and its interval in words."""
    value, low, high = (f"{each:{sign}.{digits}f}" for each in found)
    return f"{value} ({low} to {high})"
