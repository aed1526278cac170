"""Tests the page of the benchmark of distillation after pruning, against figures reckoned by hand."""

from __future__ import annotations

from typing import Any

import shrinking
from pruned_students import page, settings
from tests.benchmarks.test_shrinking import WHERE
from trainable.shrinking.shrink import DISTILLED, PRUNED, TUNED, UNPRUNED


def test_a_row_has_the_mean_difference_of_trainings_and_its_interval() -> None:
    chosen = [each for each in settings() if (each["data"], each["share"]) == ("digits", 0.25)]
    assert [each["seed"] for each in chosen] == [0, 1, 2]
    runs: list[dict[str, Any]] = [
        {
            "setting": setting,
            "left": 0.24,
            "epochs": 4,
            "accuracies": {UNPRUNED: [0.9], PRUNED: [0.2], TUNED: [0.8, 0.9], DISTILLED: taught},
        }
        for setting, taught in zip(chosen, ([0.85, 0.87], [0.86, 0.88], [0.87, 0.89]), strict=True)
    ]
    half = shrinking.STUDENT[3] / 3**0.5
    assert (
        "| digits | 0.25 | 0.240 | 4 | 3 | 90.0 % | 85.0 % | 87.0 % | "
        f"+2.0 ({2 - half:+.1f} to {2 + half:+.1f}) |"
    ) in page(runs, WHERE)
