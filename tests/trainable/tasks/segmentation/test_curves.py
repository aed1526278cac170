"""Tests that runs which learn masks are read by their mean IoU, and are given remedies that they can take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.trainable.planted_curves import curve, settling
from trainable.curves.remedies import RunVerdict, remedies
from trainable.diagnosis import Diagnosis, curves_of, diagnose, loss_of_guessing
from trainable.recipe import Recipe
from trainable.training.metrics import EpochResult

MASKS = Recipe.from_tree(
    {"task": {"kind": "segmentation"}, "data": {"path": "masks", "image_size": 64, "flips": ["horizontal"]}}
)


def mask_curve(ious: Sequence[float], train: float | None, **last: Any) -> list[EpochResult]:
    """Return a run whose pixel accuracy is 0.97 throughout, with these mean IoUs; that of training images is
    `train`."""
    history = [
        replace(each, val_accuracy=0.97, train_accuracy=0.975, extra_metrics={"val_mean_iou": iou})
        for each, iou in zip(curve(ious, None), ious, strict=True)
    ]
    clean = {} if train is None else {"clean_train_mean_iou": train}
    history[-1] = replace(history[-1], extra_metrics={**history[-1].extra_metrics, **clean}, **last)
    return history


def diagnosed(history: Sequence[EpochResult], recipe: Recipe = MASKS, images: int = 400) -> Diagnosis:
    return diagnose(history, recipe, classes=3, train_images=1_000, validation_images=images)


@pytest.mark.parametrize(
    ("ious", "train", "verdict"),
    [
        (settling(0.6), 0.97, "overfit"),
        (settling(0.6), 0.7, "overfit"),
        (settling(0.6), 0.6, "underfit"),
        (settling(0.92), 0.93, "healthy"),
        ([0.03 * number for number in range(1, 21)], 0.6, "still improving"),
    ],
)
def test_verdicts_on_masks_follow_the_mean_iou(
    ious: Sequence[float], train: float, verdict: RunVerdict
) -> None:
    found = diagnosed(mask_curve(ious, train))
    assert found.verdict == verdict
    assert found.figures["clean_train_mean_iou"] == train
    assert found.figures["val_mean_iou"] == pytest.approx(ious[-1])
    if verdict != "still improving":
        only = "only " if verdict == "underfit" else ""
        assert found.reasons[0].startswith(f"{only}a mean IoU of {train:.1%} on training images, ")
    assert "of the training images are right" not in " ".join(found.reasons)


def test_without_the_iou_of_training_images_the_gap_is_that_of_pixel_accuracies() -> None:
    found = diagnosed(mask_curve(settling(0.6), None))
    assert found.figures["gap_points"] == pytest.approx(0.5)
    assert any("the gap is that of pixel accuracies" in reason for reason in found.reasons)


def test_few_validation_images_make_a_gap_of_masks_uncertain() -> None:
    history = mask_curve(settling(0.6), 0.68)
    assert diagnosed(history, images=400).verdict == "overfit"
    assert diagnosed(history, images=6).verdict == "underfit"


def test_the_loss_of_guessing_is_that_of_the_recipes_losses() -> None:
    assert loss_of_guessing(Recipe(), 10) == pytest.approx(2.302585)
    assert loss_of_guessing(MASKS, 10) == pytest.approx(1.4 * 2.302585)
    dice = MASKS.with_values({"task.loss.dice": 1.0, "task.loss.auxiliary": 0.0})
    assert loss_of_guessing(dice, 10) == pytest.approx(3.302585)


@pytest.mark.parametrize("verdict", ["diverged", "unstable", "overfit", "still improving", "underfit"])
def test_each_remedy_is_one_that_a_recipe_of_masks_can_take(verdict: RunVerdict) -> None:
    plain = MASKS.with_values({"augmentation.crop.kind": "none", "augmentation.flip_probability": 0.0})
    found = remedies(verdict, plain, curves_of(plain.task), small_missed=True)
    assert found
    for each in found:
        assert plain.with_values({each.path: each.to}).get(each.path) == each.to
    assert plain.with_values({each.path: each.to for each in found}).task == plain.task or any(
        each.path.startswith("task.") for each in found
    )
    assert not {"regularisation.label_smoothing"} & {each.path for each in found}


def test_a_net_that_misses_small_classes_is_offered_a_loss_that_counts_them() -> None:
    history = mask_curve(settling(0.5), 0.5, val_balanced_accuracy=0.55)
    (dice,) = (each for each in diagnosed(history).changes if each.path == "task.loss.dice")
    assert dice.to == 1.0
    known = mask_curve(settling(0.5), 0.5, val_balanced_accuracy=0.95)
    assert "task.loss.dice" not in {each.path for each in diagnosed(known).changes}


def test_overfit_masks_are_offered_augmentation_of_masks() -> None:
    found = {each.path: each.to for each in diagnosed(mask_curve(settling(0.6), 0.97)).changes}
    assert found["augmentation.crop.kind"] == "scaled"
    assert found["augmentation.mixing.kind"] == "classmix"


def test_a_longer_run_is_proposed_before_larger_images() -> None:
    paths = [each.path for each in remedies("underfit", MASKS, curves_of(MASKS.task))]
    assert paths.index("loop.epochs") < paths.index("data.image_size") < paths.index("model.width")
