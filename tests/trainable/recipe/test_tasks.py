"""Tests what goes with a task, and what a segmentation may say of its masks."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainable.recipe.metrics import SCORE_OF_KIND
from trainable.recipe.recipe import Recipe, digest_of
from trainable.recipe.tasks import TASK_KINDS, TASKS, Masks
from trainable.training.metrics import OBJECTIVES


def test_every_metric_goes_with_a_task() -> None:
    """A kind that no task names could be written and never measured."""
    assert {name for task in TASKS.values() for name in task.metrics} == SCORE_OF_KIND.keys()
    assert {name for task in TASKS.values() for name in task.objectives} == OBJECTIVES.keys()


def test_the_kinds_that_a_type_checker_knows_are_those_of_the_tasks() -> None:
    assert tuple(TASKS) == TASK_KINDS


@pytest.mark.parametrize("ignored", [255, None])
def test_binary_masks_ignore_no_value(ignored: int | None) -> None:
    assert Masks(values="binary", ignore_index=ignored).values == "binary"


def test_a_value_that_binary_masks_are_to_ignore_is_refused() -> None:
    with pytest.raises(ValidationError, match="ignore_index 2 is for values: index; with values: binary all"):
        Masks(values="binary", ignore_index=2)


def test_a_threshold_is_for_binary_masks() -> None:
    assert Masks(values="binary", threshold=128).threshold == 128
    with pytest.raises(ValidationError, match="threshold 128 is for values: binary"):
        Masks(threshold=128)


def test_a_recipe_without_a_threshold_has_the_digest_that_it_had_before_there_was_one() -> None:
    masks = {"kind": "segmentation", "masks": {"values": "binary"}}
    recipe = Recipe.from_tree({"data": {"path": "cells"}, "task": masks})
    earlier = recipe.tree()
    assert earlier["task"]["masks"].pop("threshold") is None

    assert digest_of(earlier) == recipe.digest()
    assert recipe.with_values({"task.masks.threshold": 128}).digest() != recipe.digest()
