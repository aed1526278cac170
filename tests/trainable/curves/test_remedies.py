"""What is proposed after a verdict: fields that the recipe has, moved the right way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.trainable.planted_curves import curve, diagnosed, settling
from trainable.curves.remedies import RunVerdict, remedies
from trainable.recipe import Recipe
from trainable.tasks.classification.curves import LabelCurves

VERDICTS: tuple[RunVerdict, ...] = (
    "diverged",
    "unstable",
    "overfit",
    "still improving",
    "underfit",
    "healthy",
)
OPTIMIZERS = ("sgd", "rmsprop", "adam", "adamw", "adadelta", "lars", "lamb", "adam_then_sgd", "timm")
SCHEDULES = ("constant", "cosine", "step", "poly", "exp", "sgdr", "onecycle", "cyclic")
LOOSE = {"augmentation.crop.kind": "none", "augmentation.flip_probability": 0.0, "data.flips": ["horizontal"]}
TIGHT = {
    "augmentation.crop.kind": "resized",
    "augmentation.policy.kind": "trivialaugment",
    "augmentation.mixing.kind": "mixup",
    "augmentation.masking.kind": "gridmask",
    "regularisation.label_smoothing": 0.1,
    "regularisation.clipping.kind": "adaptive",
    "regularisation.clipping.factor": 0.01,
    "model.dropout": 0.3,
    "model.stochastic_depth": 0.1,
    "model.freeze_epochs": 15,
    "precision.kind": "fp16",
}


@pytest.mark.parametrize("outcome", VERDICTS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("values", [{}, LOOSE, TIGHT], ids=["default", "loose", "tight"])
def test_every_proposal_moves_a_field_that_the_recipe_has_alone_and_with_the_others(
    outcome: RunVerdict, optimizer: str, values: dict[str, Any]
) -> None:
    recipe = Recipe().with_values({"optimizer.kind": optimizer, **values})
    for schedule in SCHEDULES:
        scheduled = recipe.with_values({"schedule.kind": schedule})
        found = remedies(outcome, scheduled, LabelCurves(), rate_left=1.0)
        for change in found:
            assert scheduled.get(change.path) == change.now != change.to, change
            assert scheduled.with_values({change.path: change.to}).get(change.path) == change.to
            assert change.why
            assert change.source
        scheduled.with_values({change.path: change.to for change in found})
        assert len({change.path for change in found}) == len(found)


def test_overfitting_asks_for_more_regularisation_and_underfitting_for_less() -> None:
    overfit = {change.path: change.to for change in remedies("overfit", Recipe(), LabelCurves())}
    assert overfit["optimizer.weight_decay"] > Recipe().get("optimizer.weight_decay")
    assert overfit["augmentation.policy.kind"] == "randaugment"
    assert overfit["augmentation.mixing.kind"] == "cutmix"
    assert overfit["regularisation.label_smoothing"] == 0.1
    tight = Recipe().with_values(TIGHT)
    underfit = {change.path: change.to for change in remedies("underfit", tight, LabelCurves())}
    for path in ("policy", "mixing", "masking"):
        assert underfit[f"augmentation.{path}.kind"] == "none"
    assert underfit["augmentation.crop.scale_min"] > 0.08
    assert underfit["augmentation.crop.ratio_min"] > 0.75
    assert underfit["augmentation.crop.ratio_max"] < 4 / 3
    assert underfit["regularisation.label_smoothing"] == 0.0
    assert underfit["optimizer.weight_decay"] < Recipe().get("optimizer.weight_decay")
    assert underfit["loop.epochs"] > tight.loop.epochs


@pytest.mark.parametrize("outcome", VERDICTS)
def test_proposals_taken_again_and_again_come_to_an_end_but_for_rates_and_epochs(outcome: RunVerdict) -> None:
    recipe = Recipe().with_values({"augmentation.crop.kind": "resized", "augmentation.crop.scale_min": 0.3})
    for _ in range(12):
        found = remedies(outcome, recipe, LabelCurves(), rate_left=1.0)
        recipe = recipe.with_values({change.path: change.to for change in found})
    left = {change.path for change in remedies(outcome, recipe, LabelCurves(), rate_left=1.0)}
    assert left <= {"optimizer.lr", "loop.epochs", "schedule.warmup_epochs"}


def test_a_run_that_ends_at_a_high_rate_is_told_to_let_it_fall() -> None:
    constant = Recipe().with_values({"schedule.kind": "constant"})
    wild = [0.8 + 0.04 * (-1) ** number for number in range(20)]
    history = [replace(result, applied_lr=0.1) for result in curve(wild, 0.82)]
    assert "schedule.kind" in {change.path for change in diagnosed(history, recipe=constant).changes}
    fallen = diagnosed(curve(wild, 0.82), recipe=constant)
    assert "schedule.kind" not in {change.path for change in fallen.changes}


def test_the_lines_for_a_person_name_the_verdict_and_each_change_and_no_figure_by_its_name() -> None:
    found = diagnosed(curve(settling(0.8), 0.99))
    lines = found.lines()
    assert lines[0].startswith("overfit: ")
    assert not [name for name in found.figures if name in "\n".join(lines)]
    assert any("optimizer.weight_decay: 0.0001 -> 0.0003" in line for line in lines)
    assert lines[1].startswith("what may help")
    assert len(lines) == 2 + len(found.changes)
