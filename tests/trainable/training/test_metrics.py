"""The vocabulary of metrics."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from trainable.training.metrics import OBJECTIVES, EpochResult, worst

RESULT = EpochResult(
    epoch=3,
    train_loss=0.5,
    train_accuracy=0.8,
    val_loss=0.6,
    val_accuracy=0.75,
    val_balanced_accuracy=0.7,
    val_top5_accuracy=None,
    applied_lr=0.1,
    grad_norm=1.5,
    skipped_steps=0,
    epoch_seconds=2.0,
    data_seconds=0.1,
    evaluation_seconds=0.3,
    images_per_second=1000.0,
    peak_memory_bytes=2**20,
    micro_batch=16,
)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_result_holds_finite_numbers_only(number: float) -> None:
    with pytest.raises(ValueError, match="val_loss must be finite"):
        replace(RESULT, val_loss=number)


def test_metrics_leave_out_what_is_not_measured_and_what_is_no_metric() -> None:
    metrics = RESULT.metrics()
    assert metrics["val_accuracy"] == 0.75
    assert not {"epoch", "diverged", "val_top5_accuracy"} & set(metrics)


def test_a_result_survives_plain_data() -> None:
    assert EpochResult.from_tree(RESULT.tree()) == RESULT


def test_the_worst_value_ranks_behind_guessing_and_is_finite() -> None:
    for metric, mode in OBJECTIVES.items():
        value = worst(metric, 10)
        guessing = 0.1 if mode == "max" else math.log(10)
        assert math.isfinite(value)
        assert value < guessing if mode == "max" else value > guessing
