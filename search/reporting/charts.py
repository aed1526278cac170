"""Draws the scores of a report by the work done and by what networks cost; and what all plots share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from search.record.trials import TrialState
from search.reporting.axes import Axis, axis_over, time_axis
from search.reporting.content import BestSoFar, Progress, Report, TrialRow
from search.reporting.plots import Plot, PlotLine, Points, Spot, spots_on

# trials are drawn in this order, so that those that matter lie on top
ORDER: tuple[TrialState, ...] = (
    "infeasible", "stopped", "failed", "diverged", "queued", "paused", "running", "finished",
)  # fmt: skip
SECONDS_PER_HOUR = 3600.0
PROGRESS_ROWS, COST_ROWS = 10.0, 14.0
DASHES = 4  # compared searches have so many kinds of lines, `other-0` to `other-3`


def look_of(trial: TrialRow, best: int | None) -> str:
    """Return the class of a trial's marks: its state, or that it is the best or the documented one."""
    return "best" if trial.id == best else f"{trial.state} own" if trial.own else trial.state


def other_look(number: int) -> str:
    """Return the class of the line of a compared search, by its position among them."""
    return f"other-{number % DASHES}"


def in_order(trials: Iterable[TrialRow], best: int | None) -> list[TrialRow]:
    """Return the trials as they are drawn, the best one last."""
    return sorted(trials, key=lambda each: (each.id == best, each.own, ORDER.index(each.state)))


def upright(at: float) -> PlotLine:
    """Return the dotted line at a share of the width, from the bottom to the top."""
    return PlotLine("rung", [(at, 0.0), (at, 1.0)])


def points_of(trials: Iterable[TrialRow], best: int | None, spot: Callable[[TrialRow], Spot]) -> list[Points]:
    """Return one mark for each trial, as one layer for each look, in the order of the trials."""
    layers: dict[str, list[TrialRow]] = {}
    for each in trials:
        layers.setdefault(look_of(each, best), []).append(each)
    return [Points(look, list(map(spot, some)), [each.id for each in some]) for look, some in layers.items()]


def progress_plots(report: Report) -> list[Plot]:
    """Return the best score so far by epochs, by hours and by trials, beside that of compared searches."""
    metric = report.search.objective
    searches = [("best", report.progress)] + [
        (other_look(number), each.progress)
        for number, each in enumerate(report.compared)
        if each.objective == metric
    ]
    y = axis_over(metric, (step.score for _, each in searches for step in each.steps))
    return [_progress(name, searches, metric, y) for name in ("epochs", "hours", "trials")]


def _progress(name: str, searches: Sequence[tuple[str, Progress]], metric: str, y: Axis) -> Plot:
    done = [_work(each, name) for _, each in searches]
    x = time_axis(max(done)) if name == "hours" else axis_over(name, [0.0, *done], whole=True)
    lines = [PlotLine(look, _steps(each, name, x, y)) for look, each in searches if each.steps]
    own = searches[0][1].steps
    points = Points(
        "best",
        [(x.share(_work(each, name)), y.share(each.score)) for each in own],
        [each.trial for each in own],
    )
    said = f"Best {metric} so far by {name}"
    return Plot(said, x, y, lines=lines, points=[points] if own else [], rows=PROGRESS_ROWS)


def _work(done: Progress | BestSoFar, name: str) -> float:
    """Return how many epochs or trials had been done, or for how many seconds."""
    return SECONDS_PER_HOUR * done.hours if name == "hours" else float(getattr(done, name))


def _steps(progress: Progress, name: str, x: Axis, y: Axis) -> list[Spot]:
    """Return a line that rises where the best score does, and runs on to the work done."""
    spots: list[Spot] = []
    for each in progress.steps:
        at, up = x.share(_work(each, name)), y.share(each.score)
        spots += [(at, spots[-1][1]), (at, up)] if spots else [(at, up)]
    return [*spots, (x.share(_work(progress, name)), spots[-1][1])]


def cost_plots(report: Report) -> list[Plot]:
    """Return the scores of finished trials by what their networks cost; none where nothing was measured."""
    measured = [
        each for each in report.trials if each.costs and each.state == "finished" and each.score is not None
    ]
    return [_cost(report, measured, name) for name in (measured[0].costs if measured else ())]


def _cost(report: Report, measured: Sequence[TrialRow], name: str) -> Plot:
    metric, best = report.search.objective, report.answer.best
    x = axis_over(
        name, (each.costs[name] for each in measured), log=all(each.costs[name] > 0 for each in measured)
    )
    y = axis_over(metric, (_score(each) for each in measured))
    front = sorted((each for each in measured if each.on_frontier), key=lambda each: each.costs[name])
    pairs = [(each.costs[name], _score(each)) for each in front]
    lines = [PlotLine("frontier", spots_on(x, y, pairs))] if name == "latency_ms" and pairs else []
    points = points_of(
        in_order(measured, best), best, lambda each: (x.share(each.costs[name]), y.share(_score(each)))
    )
    return Plot(f"{metric} by {name} of finished trials", x, y, lines=lines, points=points, rows=COST_ROWS)


def _score(trial: TrialRow) -> float:
    assert trial.score is not None
    return trial.score
