"""The tasks of the search-quality benchmark, by name."""

from __future__ import annotations

from functools import cache

from offline import curve_tables, finetuning_tables, lcbench
from offline.search_task import SearchTask


def task_names(wanted: str = "lcbench,taskset,fashion-mnist") -> list[str]:
    """Return the tasks that a list names: `lcbench` is nine of them, `lcbench:4` the first four of those."""
    names: list[str] = []
    for word in wanted.split(","):
        family, _, count = word.partition(":")
        match family:
            case "lcbench":
                chosen = [f"lcbench-{each}" for each in lcbench.instances()[lcbench.CHOSEN]]
                names += chosen[: int(count)] if count else chosen
            case "finetuning":
                names += finetuning_tables.names()
            case _:
                names.append(word)
    return names


@cache
def task(name: str) -> SearchTask:
    """Return the task of this name. Raises ValueError with the known names for another."""
    match name.partition("-"):
        case "lcbench", _, instance if instance in lcbench.instances():
            return lcbench.lcbench(instance)
        case "taskset", "", _:
            return curve_tables.taskset()
        case "fashion", "-", "mnist":
            return curve_tables.fashion_mnist()
        case "finetuning", "-", _ if name in finetuning_tables.names():
            return finetuning_tables.finetuning(name)
    ours = ["taskset", "fashion-mnist", *finetuning_tables.names()]
    known = [*(f"lcbench-{each}" for each in lcbench.instances()), *ours]
    raise ValueError(f"expected a task, got {name!r}; known: {', '.join(known)}")
