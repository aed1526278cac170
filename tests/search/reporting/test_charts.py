"""Tests the chart of the learning curves."""

from __future__ import annotations

from search.reporting.charts import curves
from search.reporting.content import Report
from search.reporting.page import page


def test_a_trial_that_diverged_before_it_had_a_score_ends_at_the_bottom(planted_24: Report) -> None:
    first, *others = planted_24.trials
    none = first.model_copy(update={"state": "diverged", "epochs": 1, "score": None, "scores": {}})
    report = planted_24.model_copy(update={"trials": (none, *others)})
    plot = curves(report)
    assert first.id not in [each.trial for each in plot.lines]
    spots = [pair for each in plot.points for pair in zip(each.trials, each.spots, strict=True)]
    assert [height for trial, (_, height) in spots if trial == first.id] == [0.0]
    assert page(report)
