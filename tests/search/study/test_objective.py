"""Tests objectives with parameters of their own: what a study may name, and what its trials then measure."""

from __future__ import annotations

from typing import Any

import pytest

from search.study import Study, StudyError
from search.study.objective import Objective, class_faults, function_faults
from trainable.recipe.metrics import Cost, MacroF1, RecallAtPrecision

DIGITS = {"data": {"path": "digits"}}
COSTS = [[0.0, 1.0], [5.0, 0.0]]


def study(objective: dict[str, Any], **more: Any) -> Study:
    return Study.from_tree({**DIGITS, "objective": objective, **more})


@pytest.mark.parametrize(
    ("objective", "measured", "direction"),
    [
        ({"metric": "val_macro_f1"}, MacroF1(), "max"),
        (
            {"metric": "val_recall_at_precision", "precision": 0.9},
            RecallAtPrecision(precision=0.9),
            "max",
        ),
        (
            {"metric": "val_cost", "costs": COSTS, "classes": ["ill", "well"], "mode": "min"},
            Cost(costs=((0.0, 1.0), (5.0, 0.0)), classes=("ill", "well")),
            "min",
        ),
    ],
)
def test_the_recipe_measures_what_the_study_names(
    objective: dict[str, Any], measured: Any, direction: str
) -> None:
    asked = study(objective)
    assert asked.objective.direction == direction
    assert asked.base_recipe().evaluation.metrics == (measured,)
    assert Study.from_tree(asked.model_dump(mode="json")) == asked
    beside = study(objective, base={"evaluation": {"metrics": ["auroc"]}}).base_recipe().evaluation.metrics
    assert [each.kind for each in beside] == ["auroc", measured.kind]


def test_what_every_run_measures_changes_no_recipe() -> None:
    assert study({"metric": "val_loss"}).base_recipe().evaluation.metrics == ()


def test_a_metric_that_the_base_measures_otherwise_is_a_fault() -> None:
    pinned = {"evaluation.metrics": [{"kind": "recall_at_precision", "precision": 0.5}]}
    objective = {"metric": "val_recall_at_precision", "precision": 0.9}
    with pytest.raises(StudyError, match=r"base\.evaluation\.metrics: has recall_at_precision with other"):
        study(objective, base=pinned)
    assert study({**objective, "precision": 0.5}, base=pinned).base_recipe().evaluation.metrics


@pytest.mark.parametrize(
    ("objective", "wanted"),
    [
        ({"metric": "macro_f1"}, r"'macro_f1' is none of val_accuracy, .*val_macro_f1, val_auroc"),
        ({"metric": "val_macro_f1", "mode": "min"}, r"mode of val_macro_f1 is 'max', got 'min'"),
        ({"metric": "val_recall_at_precision"}, r"val_recall_at_precision needs precision beside it"),
        ({"metric": "val_recall_at_precision", "precision": 0.0}, r"objective\.precision: .*0"),
        ({"metric": "val_auroc", "precision": 0.5}, r"val_auroc takes no precision"),
        ({"metric": "val_accuracy", "bins": 3}, r"val_accuracy takes no bins"),
        ({"metric": "val_cost", "costs": [[0.0, 1.0], [1.0]]}, r"as many columns as rows"),
        ({"metric": "val_f_beta", "own": True}, r"say which is better, mode: max or mode: min"),
        ({"metric": "f_beta", "own": True, "mode": "max"}, r"the name of a function begins with val_"),
        ({"metric": "val_auroc", "own": True, "mode": "max"}, r"val_auroc is one of ours"),
        ({"metric": "val_f", "own": True, "mode": "max", "bins": 2}, r"is your own and takes no bins"),
    ],
)
def test_an_objective_that_cannot_be_measured_is_refused(objective: dict[str, Any], wanted: str) -> None:
    with pytest.raises(StudyError, match=wanted):
        study(objective)


def test_costs_and_top_5_need_the_classes_that_the_data_have() -> None:
    named = study({"metric": "val_cost", "costs": COSTS, "classes": ["ill", "well"]})
    recipe = named.base_recipe()
    assert not list(class_faults(named.objective, recipe, ["well", "ill"]))
    ((path, message),) = class_faults(named.objective, recipe, ["cat", "dog", "owl"])
    assert path == "objective.costs"
    assert message == "cost: classes ill, well, the data have cat, dog, owl"
    of_base = study({}, base={"evaluation.metrics": [{"kind": "cost", "costs": COSTS}]})
    ((path, message),) = class_faults(of_base.objective, of_base.base_recipe(), ["a", "b", "c"])
    assert path == "base.evaluation.metrics"
    assert "2 rows of costs, the data have 3 classes: a, b, c" in message
    ((path, message),) = class_faults(Objective(metric="val_top5_accuracy"), recipe, ["ill", "well"])
    assert "needs more than ten classes, these data have 2" in message


def test_a_function_of_ones_own_is_an_objective_where_the_search_is_given_it() -> None:
    own = study({"metric": "val_f_beta", "mode": "min", "own": True})
    assert own.objective.direction == "min"
    assert own.base_recipe().evaluation.metrics == ()
    ((path, message),) = function_faults(own.objective, ["gain"])
    assert path == "objective.metric"
    assert message == "val_f_beta is a function of yours, which a search is given in Python; given: gain"
    assert not list(function_faults(own.objective, ["f_beta"]))
