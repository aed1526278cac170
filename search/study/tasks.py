"""Says what a study learns, and by which metric its trials are compared if it names none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from search.study.objective import Objective
from trainable.errors import Fault
from trainable.recipe import Recipe
from trainable.recipe.tasks import Segmentation
from trainable.training.metrics import objectives_for

TASK = "task.kind"
SEGMENTATION = Segmentation().kind
METRIC_OF_MASKS = "val_mean_iou"
"""What published segmentations are compared by (arXiv 1411.4038, section 5; the PASCAL VOC challenge)."""


def learns_masks(base: Mapping[str, Any]) -> bool:
    """Says whether a study's `base`, with nested or dotted keys, asks for a segmentation."""
    task = base.get("task")
    kind = task.get("kind") if isinstance(task, Mapping) else base.get(TASK)
    return bool(kind == SEGMENTATION)


def default_recipe(base: Mapping[str, Any]) -> Recipe:
    """Returns the default recipe of the task that a study's `base` asks for."""
    return Recipe.from_tree({"task": {"kind": SEGMENTATION}}) if learns_masks(base) else Recipe()


def with_default_metric(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a study's tree in which a segmentation that names no metric has the one of its task."""
    objective = tree.get("objective", {})
    if not _of_masks(tree) or not isinstance(objective, Mapping) or "metric" in objective:
        return dict(tree)
    return {**tree, "objective": {**objective, "metric": METRIC_OF_MASKS}}


def without_default_metric(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a study's whole tree without the metric that its task would get by default.

    So a study that becomes one of another task gets the metric of that task.
    """
    default = METRIC_OF_MASKS if _of_masks(tree) else Objective().metric
    objective = {
        name: value for name, value in tree["objective"].items() if (name, value) != ("metric", default)
    }
    return {**tree, "objective": objective}


def metric_faults(objective: Objective, base: Mapping[str, Any]) -> Iterator[Fault]:
    """Yields a fault for a metric of ours that is one of the other task."""
    known = objectives_for(learns_masks(base))
    if not objective.own and objective.metric not in known:
        task = SEGMENTATION if learns_masks(base) else "classification"
        message = f"{objective.metric} does not go with task.kind {task}: expected {', '.join(known)}"
        yield Fault("objective.metric", message)


def _of_masks(tree: Mapping[str, Any]) -> bool:
    base = tree.get("base")
    return isinstance(base, Mapping) and learns_masks(base)
