"""Joins what an epoch's training and its scoring found into the result that it reports."""

from __future__ import annotations

from trainable.training.evaluate import Scores
from trainable.training.metrics import CLEAN_IOU, EpochResult
from trainable.training.totals import Trained

MEAN_IOU = "mean_iou"


def epoch_result(
    epoch: int,
    trained: Trained,
    scores: Scores | None,
    *,
    worst: Scores,
    clean: Scores | None,
    evaluation: float,
    memory: int,
    teacher_seconds: float | None = None,
    is_first: bool = False,
) -> EpochResult:
    """Return an epoch's result: the `worst` scores where there are none, or where they are not finite.

    `clean` are the scores of training images that are treated as validation images are. `is_first` says that
    the run has trained no epoch before in this process.
    """
    diverged = scores is None or not scores.finite
    validation = worst if scores is None or not scores.finite else scores
    return EpochResult(
        epoch=epoch,
        train_loss=worst.loss if diverged else trained.loss,
        train_accuracy=worst.accuracy if diverged else trained.accuracy,
        val_loss=validation.loss,
        val_accuracy=validation.accuracy,
        val_balanced_accuracy=validation.balanced_accuracy,
        val_top5_accuracy=validation.top5_accuracy,
        applied_lr=trained.lr,
        grad_norm=trained.grad_norm,
        skipped_steps=trained.skipped_steps,
        epoch_seconds=trained.seconds + evaluation,
        data_seconds=trained.data_seconds,
        evaluation_seconds=evaluation,
        images_per_second=trained.images / trained.seconds,
        peak_memory_bytes=memory,
        micro_batch=trained.micro_batch,
        clean_train_accuracy=None if clean is None else clean.accuracy,
        teacher_seconds=teacher_seconds,
        first_step_extra_seconds=trained.first_step_extra_seconds if is_first else None,
        diverged=diverged,
        extra_metrics={f"val_{name}": value for name, value in validation.extra.items()} | _of_masks(clean),
    )


def _of_masks(clean: Scores | None) -> dict[str, float]:
    """Return the mean IoU of training images, by which a diagnosis compares them with validation images."""
    return {} if clean is None or MEAN_IOU not in clean.extra else {CLEAN_IOU: clean.extra[MEAN_IOU]}
