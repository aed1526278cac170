"""The tables of fine-tuning curves that finetuning_table.py writes, as tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from offline.curve_tables import Table
from offline.search_task import WORST, BareSpace, SearchTask, Trained
from spaces.settled import space_from
from spaces.space import NOTHING_BELIEVED, Space

TABLES = Path(__file__).parents[1] / "tables"


def names() -> list[str]:
    """Return the names of the tasks for which there are tables, such as `finetuning-photographs-lite0`."""
    return sorted(each.stem.replace("_", "-") for each in TABLES.glob("finetuning_*.jsonl"))


def finetuning(name: str) -> SearchTask:
    """Return the task of validation accuracy over the ranges of `finetune`, of which nothing is believed.

    Warm-ups end within the first epoch, so that is the first rung.
    """
    space, rows = _read(name)
    bare = tuple(replace(each, beliefs=NOTHING_BELIEVED) for each in space.dimensions)
    table = Table(BareSpace(space.base, bare, own={}), rows, apart="optimizer.kind")
    epochs = max(len(row.curve) for row in rows)
    best = max(row.curve[-1] if len(row.curve) == epochs else WORST for row in rows)
    return SearchTask(name, table.space, epochs, 1, lambda: best, table.begin)


def documented(name: str) -> BareSpace:
    """Return the space with what the rules believe, and the documented recipe. Raises ValueError for a task
    of another family."""
    if name not in names():
        raise ValueError(f"only tables of finetuning_table.py have documented priors, {name} has none")
    space, _ = _read(name)
    return BareSpace(space.base, space.dimensions, own=space.own)


def _read(name: str) -> tuple[Space, list[Trained]]:
    first, *lines = (TABLES / f"{name.replace('-', '_')}.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    rows = [Trained(each["values"], [accuracy for accuracy, _ in each["curve"]]) for each in found]
    return space_from(json.loads(first)["space"], name), rows
