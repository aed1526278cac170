"""Tests the verdict on a run: planted curves with near misses beside them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.epoch_results import epoch_result
from tests.trainable.planted_curves import CLASSES, MANY, curve, diagnosed, settling, verdict
from trainable.diagnosis import curves_of, diagnose, loss_of_guessing
from trainable.recipe import Recipe

# --- training far above validation ------------------------------------------------------------------------


def test_training_far_above_a_flat_validation_is_overfit_and_five_points_are_not() -> None:
    assert verdict(curve(settling(0.90), 0.955)) == "overfit"
    assert verdict(curve(settling(0.90), 0.945)) == "healthy"


def test_training_far_above_a_falling_validation_is_overfit() -> None:
    falling = [0.9 - 0.002 * number for number in range(20)]
    assert verdict(curve(falling, 0.96)) == "overfit"


def test_a_gap_at_which_validation_still_rises_is_overfit_only_once_the_training_images_are_known() -> None:
    rising = [*settling(0.80, 17), 0.815, 0.83, 0.85]
    assert verdict(curve(rising, 0.93)) == "still improving"
    assert verdict(curve(rising, 0.999)) == "overfit"


def test_a_gap_within_two_standard_errors_of_few_images_is_no_overfitting() -> None:
    history = curve(settling(0.82), 0.95)
    assert verdict(history, MANY) == "overfit"
    assert verdict(history, None) == "overfit"
    assert verdict(history, 20) != "overfit"


def test_an_accuracy_that_is_no_fraction_is_diagnosed_like_any_other() -> None:
    """A journal that was changed by hand may hold one."""
    assert verdict(curve(settling(0.82), 1.9), 200) == "overfit"


def test_a_tenth_of_a_large_training_error_is_no_gap_to_regularise() -> None:
    assert verdict(curve(settling(0.24), 0.30)) == "underfit"
    assert verdict(curve(settling(0.20), 0.30)) == "overfit"


def test_swings_of_a_net_that_knows_its_training_images_are_overfitting() -> None:
    swinging = [0.7 + 0.03 * (number % 2) for number in range(20)]
    assert verdict(curve(swinging, 1.0)) == "overfit"
    assert verdict(curve(swinging, 0.75)) == "unstable"


@given(
    level=st.floats(0.3, 0.97),
    images=st.integers(50, 20_000),
    swings=st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=40),
)
def test_noise_alone_is_never_overfit(level: float, images: int, swings: list[float]) -> None:
    """Validation is just within two standard errors of the same accuracy as in training."""
    error = 1.8 * math.sqrt(level * (1.0 - level) / images)
    noisy = [min(1.0, max(0.0, level + error * swing)) for swing in swings]
    assert verdict(curve(noisy, level), images) != "overfit"


@given(
    val=st.lists(st.floats(0.1, 0.9), min_size=1, max_size=30),
    gap=st.floats(0.0, 0.1),
    wider=st.floats(0.0, 0.3),
)
def test_a_net_that_knows_more_of_its_training_images_stays_overfit(
    val: list[float], gap: float, wider: float
) -> None:
    train = min(1.0, val[-1] + gap)
    if verdict(curve(val, train)) == "overfit":
        assert verdict(curve(val, min(1.0, train + wider))) == "overfit"


# --- training and validation close together ---------------------------------------------------------------


def test_a_low_training_accuracy_that_validation_shares_is_underfit_and_a_high_one_is_healthy() -> None:
    assert verdict(curve(settling(0.70), 0.70)) == "underfit"
    assert verdict(curve(settling(0.72), 0.70)) == "underfit"
    assert verdict(curve(settling(0.955), 0.96)) == "healthy"


def test_training_some_points_above_validation_is_healthy() -> None:
    assert verdict(curve(settling(0.87), 0.90)) == "healthy"
    assert diagnosed(curve(settling(0.87), 0.90)).changes == ()


# --- validation rising to the end -------------------------------------------------------------------------


def test_validation_that_rises_to_the_end_is_still_improving_and_by_less_than_noise_is_not() -> None:
    assert verdict(curve([*settling(0.70, 17), 0.71, 0.725, 0.74], 0.75)) == "still improving"
    assert verdict(curve([*settling(0.70, 17), 0.701, 0.702, 0.704], 0.75)) == "healthy"
    assert verdict(curve([*settling(0.70, 17), 0.71, 0.725, 0.74], 0.75), images=200) != "still improving"


def test_a_rise_that_is_sure_but_small_is_not_worth_a_longer_run() -> None:
    for rise, expected in ((0.003, False), (0.008, True)):
        history = curve([*settling(0.70, 17), 0.7, 0.7 + rise / 2, 0.7 + rise], 0.75)
        assert (verdict(history, images=10**7) == "still improving") == expected


def test_a_gap_within_the_curve_s_own_swings_is_noise() -> None:
    swinging = [0.8 + 0.018 * (number % 2) for number in range(20)]
    assert verdict(curve(swinging, 0.84)) == "underfit"
    assert verdict(curve([0.818] * 20, 0.84)) == "healthy"


def test_a_rise_of_a_net_that_knows_its_training_images_is_not_worth_a_longer_run() -> None:
    assert verdict(curve([*settling(0.93, 17), 0.94, 0.95, 0.96], 0.995)) == "healthy"


def test_a_rise_from_a_dip_below_the_best_epoch_is_not_still_improving() -> None:
    assert verdict(curve([*settling(0.75, 17), 0.69, 0.70, 0.72], 0.74)) != "still improving"


def test_the_gain_of_a_cosine_s_middle_does_not_count_as_a_rise_at_its_end() -> None:
    climbing = [0.5 + 0.3 * math.sin(math.pi / 2 * min(1.0, number / 90)) for number in range(100)]
    assert verdict(curve(climbing, 0.82)) == "healthy"


# --- an end that cannot be trusted ------------------------------------------------------------------------


def test_late_swings_are_unstable_and_early_ones_are_not() -> None:
    calm, wild = [0.8] * 20, [0.8 + 0.04 * (-1) ** number for number in range(20)]
    assert verdict(curve(wild, 0.82)) == "unstable"
    assert verdict(curve(wild[:14] + calm[14:], 0.82)) == "healthy"
    assert verdict(curve([0.8 + (value - 0.8) / 5 for value in wild], 0.82)) != "unstable"


def test_swings_within_two_standard_errors_of_few_images_are_noise() -> None:
    wild = curve([0.8 + 0.015 * (-1) ** number for number in range(20)], 0.82)
    assert verdict(wild, MANY) == "unstable"
    assert verdict(wild, 500) != "unstable"


def test_steep_bends_without_a_fall_are_not_swings() -> None:
    assert verdict(curve([0.1, 0.5, 0.52, 0.8, 0.81, 0.96, 0.965, 0.97], 0.98)) != "unstable"
    assert verdict(curve([0.4 + 0.04 * number for number in range(10)], 0.78)) == "still improving"


def test_a_fall_where_a_restart_raises_the_rate_is_not_a_swing() -> None:
    saw = [0.7, 0.8, 0.85, 0.6, 0.75, 0.86, 0.6, 0.76]
    rates = [0.1, 0.05, 0.0, 0.1, 0.05, 0.0, 0.1, 0.05]
    restarts = [
        replace(result, applied_lr=rate) for result, rate in zip(curve(saw, 0.77), rates, strict=True)
    ]
    steady = [replace(result, applied_lr=0.1) for result in curve(saw, 0.77)]
    assert (verdict(restarts) == "unstable", verdict(steady) == "unstable") == (False, True)


def test_a_fall_from_the_end_of_a_cycle_is_no_collapse() -> None:
    val = [0.5, 0.6, 0.7, 0.8, 0.8, 0.8, 0.8, 0.8, 0.6, 0.62, 0.63]
    ended = [0.1, 0.09, 0.08, 0.06, 0.04, 0.02, 0.01, 0.0, 0.1, 0.09, 0.08]
    again = [replace(result, applied_lr=rate) for result, rate in zip(curve(val, 0.64), ended, strict=True)]
    assert verdict(again) != "unstable"
    assert verdict(curve(val, 0.64)) == "unstable"


def test_a_collapse_that_training_shares_is_unstable_and_one_it_does_not_share_is_overfit() -> None:
    lost = [*settling(0.8, 15), 0.79, 0.78, 0.6, 0.6, 0.6]
    assert verdict(curve(lost, 0.6)) == "unstable"
    assert verdict(curve(lost, 0.8)) == "overfit"


def test_many_skipped_steps_are_unstable_and_the_few_of_a_growing_loss_scale_are_not() -> None:
    steps = MANY // Recipe().loop.batch_size
    for skipped, expected in ((steps // 20, "unstable"), (1, "healthy")):
        history = [replace(result, skipped_steps=skipped) for result in curve(settling(0.95), 0.97)]
        late = diagnose(history, Recipe(), classes=CLASSES, train_images=steps * 128, validation_images=MANY)
        assert late.verdict == ("unstable" if skipped / steps > 0.01 else "healthy"), expected


def test_a_gradient_spike_counts_where_validation_falls_with_it() -> None:
    val = settling(0.9)
    dipped = [*val[:17], 0.86, 0.9, 0.9]
    for values, expected in ((val, "healthy"), (dipped, "unstable")):
        history = curve(values, 0.93)
        history[17] = replace(history[17], grad_norm=30.0)
        assert verdict(history) == expected
    assert verdict(curve(dipped, 0.93)) == "healthy"


def test_a_training_loss_above_that_of_guessing_is_unstable() -> None:
    chance = [0.1] * 5
    assert verdict(curve(chance, 0.1, train_loss=3.6)) == "unstable"
    assert verdict(curve(chance, 0.1, train_loss=2.4)) == "underfit"
    assert verdict(curve(settling(0.7), 0.7, train_loss=3.6)) == "unstable"
    assert verdict(curve(settling(0.7), 0.7, train_loss=3.3)) == "underfit"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kind": "logits", "temperature": 2.0, "weight": 0.25}, 0.75 * math.log(10) + math.log(10)),
        (
            {"kind": "dkd", "temperature": 2.0, "alpha": 1.0, "beta": 8.0},
            (0.5 + 0.5 * 4.0 * 9.0) * math.log(10),
        ),
        ({"kind": "features"}, 0.5 * math.log(10) + 0.5),
    ],
)
def test_a_teacher_s_part_counts_in_the_loss_of_guessing(fields: dict[str, Any], expected: float) -> None:
    taught = Recipe.from_tree({"distillation": {"teacher": "large", **fields}})
    assert loss_of_guessing(taught, CLASSES) == pytest.approx(expected)
    history = curve(settling(0.7), 0.7, train_loss=1.4 * expected)
    assert verdict(history, recipe=taught) == "underfit"
    assert verdict(curve(settling(0.7), 0.7, train_loss=1.6 * expected), recipe=taught) == "unstable"


def test_a_net_that_a_high_rate_has_knocked_out_is_unstable_and_one_that_learnt_nothing_yet_is_underfit() -> (
    None
):
    dead = [replace(result, train_loss=2.31) for result in curve([0.1] * 5, 0.1)]
    assert verdict(dead) == "underfit"
    assert verdict([replace(dead[0], train_loss=3.0), *dead[1:]]) == "unstable"
    learnt = [replace(result, train_loss=1.5) for result in curve([0.1, 0.3, 0.5, 0.5, 0.5], 0.5)]
    assert verdict([replace(learnt[0], train_loss=3.0), *learnt[1:]]) == "underfit"


def test_a_higher_rate_is_not_proposed_to_a_net_whose_loss_has_been_above_that_of_guessing() -> None:
    low = [replace(result, train_loss=1.5) for result in curve(settling(0.6), 0.6)]
    for loss, expected in ((2.3, True), (2.6, False)):
        found = diagnosed([replace(low[0], train_loss=loss), *low[1:]])
        assert found.verdict == "underfit"
        assert any(change.path == "optimizer.lr" for change in found.changes) == expected


def test_a_diverged_run_is_called_so_whatever_came_before() -> None:
    history = [*curve(settling(0.9), None), epoch_result(21, 0.0, diverged=True)]
    found = diagnosed(history)
    assert found.verdict == "diverged"
    assert found.figures["best_val_accuracy"] == pytest.approx(0.9)
    assert "epoch 21" in found.reasons[0]


# --- what is missing --------------------------------------------------------------------------------------


def test_without_a_clean_training_accuracy_the_augmented_one_stands_in_and_that_is_said() -> None:
    found = diagnosed(curve(settling(0.85), None, train_accuracy=0.95))
    assert found.verdict == "overfit"
    assert any("clean_train_accuracy was not measured" in reason for reason in found.reasons)
    assert "clean_train_accuracy" not in found.figures
    assert not any("clean" in reason for reason in diagnosed(curve(settling(0.85), 0.95)).reasons)


def test_the_augmented_training_accuracy_decides_nothing_where_the_clean_one_is_known() -> None:
    assert verdict(curve(settling(0.88), 0.90, train_accuracy=0.3)) == "healthy"


def test_nothing_trained_is_nothing_to_diagnose() -> None:
    with pytest.raises(ValueError, match="no epoch"):
        diagnose([], Recipe(), classes=CLASSES)


@given(
    val=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50),
    train=st.none() | st.floats(0.0, 1.0),
    images=st.none() | st.integers(1, 10**6),
    classes=st.integers(1, 1000),
)
def test_every_history_has_a_verdict_in_finite_json(
    val: list[float], train: float | None, images: int | None, classes: int
) -> None:
    found = diagnose(curve(val, train), Recipe(), classes=classes, train_images=1, validation_images=images)
    assert json.loads(json.dumps(found.tree(), allow_nan=False))["verdict"] == found.verdict
    assert found.reasons
    assert bool(found.changes) == (found.verdict != "healthy")


@pytest.mark.parametrize(
    ("mistakes", "expected"), [(0, "at its ceiling"), (5, "at its ceiling"), (6, "healthy")]
)
def test_validation_that_no_better_net_could_beat_by_more_than_luck_is_at_its_ceiling(
    mistakes: int, expected: str
) -> None:
    found = diagnosed(curve(settling(1.0 - mistakes / MANY), 1.0))
    assert found.verdict == expected
    assert ("cannot show what is better" in found.reasons[0]) == (expected != "healthy")
    assert found.changes == ()


def test_a_net_that_is_scored_by_masks_has_no_ceiling_of_mistakes() -> None:
    of_masks = Recipe.from_tree({"task": {"kind": "segmentation"}})
    assert verdict(curve(settling(1.0), 1.0), recipe=of_masks) == "healthy"


def test_the_noise_of_a_score_is_known_of_what_a_task_is_scored_by_alone() -> None:
    masks = curves_of(Recipe.from_tree({"task": {"kind": "segmentation"}}).task)
    figures = diagnosed(curve(settling(0.9), 0.95)).figures
    assert curves_of(Recipe().task).noise("val_accuracy", figures) == figures["noise_points"] / 100.0
    assert curves_of(Recipe().task).noise("val_loss", figures) is None
    assert masks.noise("val_mean_iou", figures) is None, "pixel accuracies were read"
    assert masks.noise("val_mean_iou", {"val_mean_iou": 0.8, "noise_points": 2.0}) == 0.02
    assert masks.noise("val_accuracy", {"val_mean_iou": 0.8, "noise_points": 2.0}) is None
