"""Tests the vocabulary of metrics."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from epoch_results import epoch_result
from trainable.training.metrics import ALWAYS, EpochResult, worst

RESULT = epoch_result(epoch=3, accuracy=0.75)


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
    for metric, mode in ALWAYS.items():
        value = worst(metric, 10)
        guessing = 0.1 if mode == "max" else math.log(10)
        assert math.isfinite(value)
        assert value < guessing if mode == "max" else value > guessing
