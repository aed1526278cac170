"""Diagnoses a run's curves after its end: a verdict, the figures that led to it, and the fields to change.

Training accuracy against validation accuracy decides what to do next (PaddleClas guide, 003:84): far apart,
the net has learnt its images by heart; close together and low, it has not learnt enough. The training
accuracy is `clean_train_accuracy`: on training images treated as validation images are, for augmented ones
are harder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from trainable.curves.curves import Curves
from trainable.curves.levels import at_ceiling, least_accuracy, mistakes_in_words
from trainable.curves.remedies import RunVerdict, remedies
from trainable.curves.task_curves import Remedy, TaskCurves
from trainable.recipe import Recipe
from trainable.recipe.tasks import AnyTask, Classification, Segmentation
from trainable.tasks.classification.curves import LabelCurves
from trainable.tasks.segmentation.curves import MaskCurves
from trainable.training.metrics import EpochResult, wilson_interval

MISSED = 0.1  # if the mean recall of classes is so far below the accuracy, small classes are known less; ours


@dataclass(frozen=True)
class Diagnosis:
    """The conclusion about a run.

    `figures` are finite and by name: accuracies as fractions; a name that ends in `_points` has hundredths.
    """

    verdict: RunVerdict
    figures: Mapping[str, float]
    reasons: tuple[str, ...]
    changes: tuple[Remedy, ...]

    def tree(self) -> dict[str, Any]:
        """Return plain data, which `metrics.json` and `--json` have under `diagnosis`."""
        return {
            "verdict": self.verdict,
            "figures": dict(self.figures),
            "reasons": list(self.reasons),
            "changes": [change.tree() for change in self.changes],
        }

    def lines(self) -> list[str]:
        """Return lines for a person: the verdict with its reasons, then a line for each field to change. The
        figures are in `tree`."""
        lines = [f"{self.verdict}: {'; '.join(self.reasons)}"]
        lines += ["what may help, a field of the recipe each (--set FIELD=VALUE):"] if self.changes else []
        return [*lines, *(f"  {change}" for change in self.changes)]


def curves_of(task: AnyTask) -> TaskCurves:
    """Return how the curves of a recipe's task are read."""
    match task:
        case Classification():
            return LabelCurves()
        case Segmentation():
            return MaskCurves(task)
        case _:
            assert_never(task)


def image_interval(metric: str, score: float, task: AnyTask, images: int) -> tuple[float, float] | None:
    """Return the 95 % interval of a score on so many images, for other images like them; None of a metric
    that is no share of images."""
    mistakes = curves_of(task).mistakes(metric, {metric: score}, images)
    return None if mistakes is None else wilson_interval(images - mistakes, images)


def loss_of_guessing(recipe: Recipe, classes: int) -> float:
    """Return at most what a network's loss is that gives every class the same probability: whether there is
    a second head, whose loss a recipe adds, and how sure a teacher is, are not known here. A teacher is
    rarely so sure, so with one a loss above this is a late sign. Of features it is the loss of zeros.
    """
    whole = curves_of(recipe.task).guessing(classes)
    if (taught := recipe.distillation) is None:
        return whole
    return (1.0 - taught.weight) * whole + taught.weight * taught.guessing(math.log(max(classes, 2)))


def diagnose(
    history: Sequence[EpochResult],
    recipe: Recipe,
    *,
    classes: int,
    train_images: int | None = None,
    validation_images: int | None = None,
) -> Diagnosis:
    """Return the verdict on a run that is over, from all its epochs.

    If several hold, the first of these is the verdict, as each makes the later ones unreliable: `diverged`;
    `overfit` by a net that knows its training images, which no unstable run does; `unstable`; `overfit`, if
    validation no longer rises; `still improving`, since a longer run would end with another gap; `underfit`;
    `at its ceiling`, where validation has next to no mistake left, so that it cannot show what is better;
    `healthy`. `train_images` and `validation_images` are the sizes of the parts: without the second, noise is
    measured on the curve alone; without the first, skipped steps are not looked at. Raises ValueError if no
    epoch was trained. Source: 003:84; the other limits are the `Thresholds` of what the recipe's task is
    scored by.
    """
    if not history:
        raise ValueError("there is nothing to diagnose: no epoch was trained")
    if (last := history[-1]).diverged:
        return _of_diverged(history, recipe)
    train_steps = train_images // recipe.loop.batch_size if train_images is not None else None
    task = curves_of(recipe.task)
    levels = task.levels(history)
    guessing = loss_of_guessing(recipe, classes)
    curves = Curves(tuple(history), levels, classes, guessing, train_steps, validation_images)
    verdict, reasons = _verdict(curves)
    if verdict == "healthy" and validation_images is not None:
        mistakes = task.mistakes("val_accuracy", last.metrics(), validation_images)
        if mistakes is not None and at_ceiling(mistakes, validation_images):
            verdict, reasons = "at its ceiling", (_ceiling(mistakes, validation_images), *reasons)
    if not levels.is_clean:
        reasons = (*reasons, levels.not_clean)
    proposed = remedies(
        verdict,
        recipe,
        task,
        rate_left=curves.rate_left,
        rate_may_rise=curves.rate_may_rise,
        small_missed=last.val_accuracy - last.val_balanced_accuracy > MISSED,
    )
    return Diagnosis(verdict, curves.figures(), reasons, proposed)


def _of_diverged(history: Sequence[EpochResult], recipe: Recipe) -> Diagnosis:
    # its last epoch has stand-ins for scores
    last = history[-1]
    figures = {"epochs": float(last.epoch), "applied_lr": last.applied_lr, "grad_norm": last.grad_norm}
    if before := [result.val_accuracy for result in history[:-1]]:
        figures["best_val_accuracy"] = max(before)
    what = f"the loss was not finite, or too high to recover from, in epoch {last.epoch}"
    reason = f"{what}, at a rate of {last.applied_lr:.3g}"
    return Diagnosis("diverged", figures, (reason,), remedies("diverged", recipe, curves_of(recipe.task)))


def _verdict(curves: Curves) -> tuple[RunVerdict, tuple[str, ...]]:
    limits = curves.thresholds
    apart = curves.gap > curves.overfit_limit
    levels = f"{curves.levels.train_in_words}, validation is {_distance(curves.gap)}"
    known = curves.train >= limits.train_saturated
    if apart and known:
        return "overfit", (levels,)
    if signs := tuple(curves.signs_of_instability()):
        return "unstable", signs
    if apart and not curves.rises:
        return "overfit", (f"{levels} and no longer rises",)
    if curves.rises and not known:
        rise = f"validation rose by {100 * curves.rise:.1f} points over the last {curves.last_epochs} epochs"
        return "still improving", (f"{rise}, and {curves.levels.left_in_words}",)
    if curves.gap <= curves.agreement and curves.train < limits.train_target:
        return "underfit", (f"only {levels}",)
    return "healthy", (levels,)


def _ceiling(mistakes: int, images: int) -> str:
    return (
        f"{mistakes_in_words(mistakes)} on {images:,} validation images, which cannot show what is better: "
        f"the true accuracy is above {least_accuracy(mistakes, images):.4f} (95 %)"
    )


def _distance(gap: float) -> str:
    return f"{abs(100 * gap):.1f} points {'below' if gap >= 0.0 else 'above'}"
