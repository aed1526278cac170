"""Draws the learning curves of a report: all of them whole, and once more those near the best score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from search.reporting.axes import MARGIN, Axis, axis_over, numbered_axis
from search.reporting.charts import in_order, look_of, points_of, upright
from search.reporting.content import Report, TrialRow
from search.reporting.plots import CROWDED, Label, Plot, PlotLine, spots_on
from spaces.domains import counted
from trainable.training.metrics import sign_of

CURVES_ROWS = 24.0
LEAST_FINISHED = 3  # of fewer finished trials nothing is drawn closer
CLOSER = 3.0  # curves are drawn closer where that stretches scores by this factor or more
# of more trials those are drawn closer that beat the most others, so that lines can be told apart
MOST_CLOSER = CROWDED

EpochScore = tuple[float, float]  # an epoch and the score after it


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
