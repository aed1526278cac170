"""Tests studies of a segmentation: their network, their metric, and what they may vary."""

from __future__ import annotations

from typing import Any

import pytest

from search.study import Study, StudyError
from spaces.catalog.catalog import make_space
from spaces.domains import SpaceError
from tests.spaces.small_facts import base_recipe, masks_facts
from trainable.recipe.metrics import BoundaryF1

DATA = {"data": {"path": "nuclei"}}
MASKS: dict[str, Any] = {"task": {"kind": "segmentation", "masks": {"values": "binary"}}}


def study(**sections: Any) -> Study:
    return Study.from_tree({**DATA, **sections})


@pytest.mark.parametrize("base", [MASKS, {"task.kind": "segmentation"}])
def test_a_segmentation_without_a_network_or_a_metric_has_those_of_its_task(base: dict[str, Any]) -> None:
    found = study(base=base)
    assert found.base_recipe().model.kind == "unet_small"
    assert (found.objective.metric, found.objective.direction) == ("val_mean_iou", "max")
    assert found.objective.counts_classes_alike
    assert found.objective.spec is None, "every run measures it"


def test_a_classification_is_written_as_before() -> None:
    assert study().objective.metric == "val_accuracy"
    assert study(base={"task.kind": "classification"}).base_recipe().model.kind == "resnet_small"


def test_the_metric_of_the_task_is_written_and_read_again() -> None:
    found = study(base=MASKS)
    assert "metric: val_mean_iou" in found.yaml()
    assert Study.from_tree(found.model_dump(mode="json")) == found


def test_a_study_that_becomes_a_segmentation_gets_its_metric_unless_it_names_one() -> None:
    assert study().with_values({"base.task.kind": "segmentation"}).objective.metric == "val_mean_iou"
    assert study(base=MASKS).with_values({"base": {}}).objective.metric == "val_accuracy"
    named = study(objective={"metric": "val_loss"})
    assert named.with_values({"base.task.kind": "segmentation"}).objective.metric == "val_loss"


@pytest.mark.parametrize(
    ("base", "metric", "expected"),
    [
        (MASKS, "val_macro_f1", r"expected val_mean_iou, val_mean_dice, val_accuracy"),
        (MASKS, "val_top5_accuracy", r"does not go with task\.kind segmentation"),
        ({}, "val_mean_iou", r"does not go with task\.kind classification: expected val_accuracy"),
        ({}, "val_boundary_f1", r"does not go with task\.kind classification"),
    ],
)
def test_metrics_of_the_other_task_are_refused_with_those_that_there_are(
    base: dict[str, Any], metric: str, expected: str
) -> None:
    with pytest.raises(StudyError, match=rf"objective\.metric: {metric} .*{expected}|{expected}"):
        study(base=base, objective={"metric": metric})


def test_boundaries_are_measured_where_they_are_the_objective() -> None:
    found = study(base=MASKS, objective={"metric": "val_boundary_f1"})
    assert found.base_recipe().evaluation.metrics == (BoundaryF1(),)


def test_an_unknown_task_is_named_with_those_that_there_are() -> None:
    with pytest.raises(
        StudyError, match=r"base\.task\.kind: expected one of 'classification', 'segmentation'"
    ):
        study(base={"task": {"kind": "detection"}})


def test_decoders_may_be_chosen_between() -> None:
    overrides = {"model.name": {"choice": ["unet", "fpn"]}}
    base = {**MASKS, "model": {"kind": "smp", "encoder": "resnet18"}}
    found = study(base=base, space={"overrides": overrides})
    assert found.networks == ("unet", "fpn")
    assert found.base_recipe().get("model.name") == "unet"


def test_the_loss_may_vary_and_what_trials_are_scored_by_may_not() -> None:
    facts = masks_facts()
    base = base_recipe(facts)

    def names(**overrides: Any) -> set[str]:
        written = {path.replace("__", "."): each for path, each in overrides.items()}
        space = make_space("quick", base, frozenset(), facts, written)
        return {each.name for each in space.dimensions}

    assert "task.loss.focal" in names(task__loss__focal={"uniform": [0.0, 2.0]})
    for path in ("task__masks__values", "task__overlap", "task__kind"):
        with pytest.raises(SpaceError, match="can never vary: trials of different tasks, or of other masks"):
            names(**{path: {"choice": [1]}})
