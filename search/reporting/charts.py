"""The scores of a report, drawn: by epoch, whole and near the best score, by the work done, and by the
costs of networks; what each worker did when, with what cost time; and what all plots share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from search.record.clock import duration
from search.record.journal import Repeat
from search.record.trials import TrialState, state_in_words
from search.reporting.content import AttemptRow, BestSoFar, Progress, RepeatRow, Report, TrialRow
from search.reporting.plots import (
    CROWDED,
    MARGIN,
    Axis,
    Label,
    Plot,
    PlotLine,
    Points,
    Spot,
    Tick,
    axis_over,
    numbered_axis,
    spots_on,
    time_axis,
)
from search.reporting.timeline import SECONDS_PER_HOUR
from spaces.domains import counted
from trainable.training.metrics import sign_of

# trials are drawn in this order, so that those that matter lie on top
ORDER: tuple[TrialState, ...] = (
    "infeasible", "stopped", "failed", "diverged", "queued", "paused", "running", "finished",
)  # fmt: skip
PROGRESS_ROWS, COST_ROWS = 10.0, 14.0
DASHES = 4  # compared searches have so many kinds of lines, `other-0` to `other-3`
CURVES_ROWS = 24.0
LEAST_FINISHED = 3  # of fewer finished trials nothing is drawn closer
CLOSER = 3.0  # curves are drawn closer where that stretches scores by this factor or more
# of more trials those are drawn closer that beat the most others, so that lines can be told apart
MOST_CLOSER = CROWDED
EpochScore = tuple[float, float]  # an epoch and the score after it
LEAST_ROWS, ROWS_OF_LANE = 4.0, 1.3
# how attempts end whose trial goes on in another one, in words
LOST = {"retried": "tried again", "preempted": "machine taken back", "cut": "cut with its driver"}


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


def curves(report: Report) -> Plot:
    """Return the score of every trial by epoch; vertical lines are the rungs."""
    trials = _shown(report)
    y = axis_over(report.search.objective, (score for each in trials for score in each.scores.values()))
    lines = [[sorted(each.scores.items())] if each.scores else [] for each in trials]
    return _plot(report, f"{y.name} of {counted(len(trials), 'trial')} by epoch", trials, lines, trials, y)


def closer_curves(report: Report) -> Plot | None:
    """Return the parts of the curves near the best final score; None where `curves` shows them well enough.

    Its axis ends twice as far from the best as the final scores of three in four finished trials.
    """
    trials, sign, name = _shown(report), sign_of(report.search.mode), report.search.objective
    worths = [sign * score for each in trials for score in each.scores.values()]
    finals = sorted(
        sign * each.score for each in trials if each.state == "finished" and each.score is not None
    )
    if len(finals) < LEAST_FINISHED or finals[-1] == (quarter := finals[len(finals) // 4]):
        return None
    least, most = finals[-1] - 2.0 * (finals[-1] - quarter), max(worths)
    if CLOSER * (most - least) > most - min(worths):
        return None
    y = numbered_axis(name, *sorted((sign * least, sign * (most + MARGIN * (most - least)))))
    near = _best_of(trials, report.answer.best)
    lines = [list(_pieces(sorted(each.scores.items()), least, sign)) for each in near]
    ends = [each for each in near if each.scores and sign * each.scores[max(each.scores)] >= least]
    return _plot(report, f"The same {name} closer, where it is best", near, lines, ends, y)


def _best_of(trials: Sequence[TrialRow], best: int | None) -> list[TrialRow]:
    """Return the trials that are drawn closer, in the same order, the best and the documented one always."""
    ranked = sorted(trials, key=lambda each: -1.0 if each.place is None else each.place, reverse=True)
    kept = {each.id for each in ranked[:MOST_CLOSER]}
    return [each for each in trials if each.id in kept or each.id == best or each.own]


def _shown(report: Report) -> list[TrialRow]:
    return [each for each in in_order(report.trials, report.answer.best) if each.epochs]


def _plot(
    report: Report,
    says: str,
    trials: Sequence[TrialRow],
    lines: Sequence[Sequence[Sequence[EpochScore]]],
    ends: Sequence[TrialRow],
    y: Axis,
) -> Plot:
    """Return the plot of the trials' lines, each in one piece or more, with a mark at these trials' ends."""
    search, best = report.search, report.answer.best
    x = numbered_axis("epoch", 0.5, search.budget_epochs + 0.5, whole=True)
    drawn = [
        PlotLine(look_of(each, best), spots_on(x, y, piece), each.id)
        for each, pieces in zip(trials, lines, strict=True)
        for piece in pieces
    ]
    return Plot(
        says,
        x,
        y,
        lines=[*(upright(x.share(each)) for each in search.rungs), *drawn],
        points=points_of(ends, best, lambda each: (x.share(each.epochs), _height(each, y))),
        labels=[Label((x.share(each), 1.0), "rung", "rung") for each in search.rungs],
        rows=CURVES_ROWS,
    )


def _height(trial: TrialRow, y: Axis) -> float:
    """Return the height of a trial's last score; the bottom if it diverged before it had one."""
    return y.share(trial.scores[max(trial.scores)]) if trial.scores else 0.0


def _pieces(curve: Sequence[EpochScore], least: float, sign: float) -> Iterator[list[EpochScore]]:
    """Yield the pieces of a curve that are as good as `least`, a score times the sign, or better."""
    piece: list[EpochScore] = [each for each in curve[:1] if sign * each[1] >= least]
    for (epoch, score), (later, next_score) in pairwise(curve):
        before, after = sign * score - least, sign * next_score - least
        if (before >= 0.0) != (after >= 0.0):
            piece.append((epoch + (later - epoch) * before / (before - after), sign * least))
        if after >= 0.0:
            piece.append((later, next_score))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def workers(report: Report) -> Plot | None:
    """Return what each worker did when; None before the first attempt at a trial."""
    if not (attempts := report.attempts):
        return None
    end, lanes = max(each.end for each in attempts), 1 + max(each.lane for each in attempts)
    x, drivers = time_axis(end), report.later_drivers
    rows = tuple(Tick(1.0 - (at + 0.5) / lanes, str(at + 1)) for at in range(lanes))  # the first at the top
    y = Axis("worker", ticks=rows)
    lost = [_along(each, x, y)[-1] for each in attempts if each.outcome in LOST]
    again = {each.id: each for each in report.repeats}
    bars = [_bar(each, again.get(each.trial), _along(each, x, y)) for each in attempts]
    stalls = [
        PlotLine("stall", [(x.share(at), y.ticks[each.lane].at) for at in stall])
        for each in attempts
        for stall in each.stalls
    ]
    return Plot(
        f"What {counted(lanes, 'worker')} did in {duration(end)}: {counted(len(attempts), 'attempt')}",
        x,
        y,
        lines=[*(upright(x.share(each.at)) for each in drivers), *bars, *stalls],
        points=[Points("lost", lost)] if lost else [],
        labels=[Label((x.share(each.at), 1.0), each.what, "rung") for each in drivers],
        rows=max(LEAST_ROWS, ROWS_OF_LANE * lanes),
    )


def _along(attempt: AttemptRow, x: Axis, y: Axis) -> list[Spot]:
    return [(x.share(each), y.ticks[attempt.lane].at) for each in (attempt.start, attempt.end)]


def _bar(attempt: AttemptRow, again: RepeatRow | None, spots: list[Spot]) -> PlotLine:
    """Return the bar of an attempt; `again` is the run it belongs to, if that trains a trial again."""
    look = "lost" if attempt.outcome in LOST else attempt.outcome
    ended = f", attempt {attempt.number}: {LOST[attempt.outcome]}" if attempt.outcome in LOST else ""
    if again is None:
        return PlotLine(f"bar {look}", spots, attempt.trial, f"trial {attempt.trial}{ended}" if ended else "")
    run = Repeat(of=again.of, purpose=again.purpose, seed=again.seed, split=again.split)
    epochs = counted(again.epochs, "epoch")
    reached = (
        f": {state_in_words(again.state)}" if again.score is None else f": {again.score:.4f} after {epochs}"
    )
    return PlotLine(f"bar {look} again", spots, again.of, f"{run}{ended or reached}")


class Trouble(NamedTuple):
    """One loss of time, at seconds under a driver."""

    trial: int
    again: bool  # whether a run was lost that trains the trial again
    number: int
    at: float
    what: str
    why: str
    where: str


def troubles(report: Report) -> Iterator[Trouble]:
    """Yield what cost time, by the starts of attempts."""
    repeated = {each.id: each.of for each in report.repeats}
    for each in report.attempts:
        trial, again = repeated.get(each.trial, each.trial), each.trial in repeated
        for start, end in each.stalls:
            waited = f"no epoch for {duration(end - start)}"
            yield Trouble(trial, again, each.number, start, "stalled", waited, each.place)
        if each.outcome in LOST or each.outcome == "failed":
            what = LOST.get(each.outcome, "failed")
            yield Trouble(trial, again, each.number, each.end, what, each.reason or "", each.place)
