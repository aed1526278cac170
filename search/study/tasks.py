"""Says what a study learns, and by which metric its trials are compared if it names none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from search.study.objective import Objective
from trainable.errors import Fault
from trainable.recipe import Recipe
from trainable.recipe.tasks import CLASSIFICATION, TASKS, AnyTask

TASK = "task.kind"


def task_asked(base: Mapping[str, Any]) -> AnyTask:
    """Return the task that a study's `base`, with nested or dotted keys, asks for, with its defaults."""
    task = base.get("task")
    kind = task.get("kind") if isinstance(task, Mapping) else base.get(TASK)
    return TASKS[kind]() if isinstance(kind, str) and kind in TASKS else CLASSIFICATION


def default_recipe(base: Mapping[str, Any]) -> Recipe:
    """Return the default recipe of the task that a study's `base` asks for."""
    return Recipe.from_tree({"task": {"kind": task_asked(base).kind}})


def with_default_metric(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's tree with the metric of its task, where it names none."""
    objective, default = tree.get("objective", {}), _default_metric(tree)
    named = not isinstance(objective, Mapping) or "metric" in objective
    if named or default == Objective().metric:
        return dict(tree)
    return {**tree, "objective": {**objective, "metric": default}}


def without_default_metric(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's whole tree without the metric that its task would get by default.

    So a study that becomes one of another task gets the metric of that task.
    """
    default = ("metric", _default_metric(tree))
    objective = {name: value for name, value in tree["objective"].items() if (name, value) != default}
    return {**tree, "objective": objective}


def metric_faults(objective: Objective, base: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield a fault for a metric of ours that is one of another task."""
    task = task_asked(base)
    if not objective.own and objective.metric not in task.objectives:
        known = ", ".join(task.objectives)
        message = f"{objective.metric} does not go with task.kind {task.kind}: expected {known}"
        yield Fault("objective.metric", message)


def _default_metric(tree: Mapping[str, Any]) -> str:
    base = tree.get("base")
    return task_asked(base if isinstance(base, Mapping) else {}).objectives[0]
