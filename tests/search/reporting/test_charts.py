"""Tests the charts of scores."""

from __future__ import annotations

import pytest

from search.reporting.charts import closer_curves, curves, progress_plots
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


def with_curves(report: Report, *curves: dict[int, float]) -> Report:
    """Return the report with these curves of finished trials alone, and the last one as the best."""
    trials = tuple(
        trial.model_copy(
            update={"state": "finished", "epochs": max(curve), "scores": curve, "score": curve[max(curve)]}
        )
        for trial, curve in zip(report.trials, curves, strict=False)
    )
    answer = report.answer.model_copy(update={"best": len(trials) - 1})
    return report.model_copy(update={"trials": trials, "answer": answer})


POOR = {1: 0.1, 2: 0.5}
GOOD = ({1: 0.5, 2: 0.96}, {1: 0.9, 2: 0.98}, {1: 0.2, 2: 0.99}, {1: 0.9, 2: 1.0})


def test_curves_near_the_best_are_drawn_closer_and_cut_where_they_leave_the_plot(planted_24: Report) -> None:
    """Three in four finished trials end within 0.04 of the best, so the axis begins 0.08 below it."""
    plot = closer_curves(with_curves(planted_24, POOR, *GOOD))
    assert plot is not None
    assert plot.y.low == pytest.approx(0.92)
    lines = {each.trial: each.spots for each in plot.lines if each.trial is not None}
    assert set(lines) == {1, 2, 3, 4}  # the poor one is not near
    assert {trial for each in plot.points for trial in each.trials} == {1, 2, 3, 4}
    (left, bottom), (_, top) = lines[1]
    crossing = 1.0 + (0.92 - 0.5) / (0.96 - 0.5)  # on the straight line from epoch 1 to 2
    assert left == pytest.approx(plot.x.share(crossing))
    assert (bottom, top) == (pytest.approx(0.0), pytest.approx(plot.y.share(0.96)))


def test_a_curve_that_leaves_the_closer_plot_and_comes_back_has_two_pieces(planted_24: Report) -> None:
    dip = {1: 0.95, 2: 0.5, 3: 0.97}
    plot = closer_curves(with_curves(planted_24, POOR, dip, *GOOD))
    assert plot is not None
    assert [len(each.spots) for each in plot.lines if each.trial == 1] == [2, 2]


def test_where_lower_is_better_the_closer_plot_is_at_the_bottom(planted_24: Report) -> None:
    losses = [{epoch: 1.0 - score for epoch, score in each.items()} for each in (POOR, *GOOD)]
    search = planted_24.search.model_copy(update={"mode": "min"})
    plot = closer_curves(with_curves(planted_24.model_copy(update={"search": search}), *losses))
    assert plot is not None
    assert plot.y.high == pytest.approx(0.08)
    assert {each.trial for each in plot.lines if each.trial is not None} == {1, 2, 3, 4}


EQUAL = (POOR, *3 * ({1: 0.9, 2: 0.95},))
ALIKE = ({1: 0.9, 2: 0.96}, {1: 0.94, 2: 0.98}, {1: 0.9, 2: 0.99}, {1: 0.9, 2: 1.0})


@pytest.mark.parametrize("curves", [(POOR, GOOD[-1]), EQUAL, ALIKE])
def test_nothing_is_drawn_closer_that_would_look_much_the_same(
    planted_24: Report, curves: tuple[dict[int, float], ...]
) -> None:
    assert closer_curves(with_curves(planted_24, *curves)) is None


def test_a_short_search_is_drawn_by_seconds_and_trials_are_whole(planted_24: Report) -> None:
    progress = planted_24.progress.model_copy(update={"epochs": 4, "trials": 1, "hours": 30.0 / 3600.0})
    step = planted_24.progress.steps[0].model_copy(update={"epochs": 4, "trials": 1, "hours": 15.0 / 3600.0})
    report = planted_24.model_copy(update={"progress": progress.model_copy(update={"steps": (step,)})})
    epochs, time, trials = progress_plots(report)
    assert (epochs.x.name, time.x.name, trials.x.name) == ("epochs", "seconds", "trials")
    assert [spot[0] for each in time.points for spot in each.spots] == [pytest.approx(0.5)]
    assert [each.text for each in trials.x.ticks] == ["0", "1"]
