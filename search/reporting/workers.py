"""Draws what each worker did when, and lists what cost time: retries, preemptions, failures, stalls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from search.record.clock import duration
from search.record.repeats import Repeat
from search.reporting.axes import Axis, Tick, time_axis
from search.reporting.charts import upright
from search.reporting.content import AttemptRow, RepeatRow, Report
from search.reporting.plots import Label, Plot, PlotLine, Points, Spot
from spaces.domains import counted

LEAST_ROWS, ROWS_OF_LANE = 4.0, 1.3
# how attempts end whose trial goes on in another one, in words
LOST = {"retried": "tried again", "preempted": "machine taken back", "cut": "cut with its driver"}


def workers(report: Report) -> Plot | None:
    """Return what each worker did when; None before the first attempt at a trial."""
    if not (attempts := report.attempts):
        return None
    end, lanes = max(each.end for each in attempts), 1 + max(each.lane for each in attempts)
    x, y, drivers = time_axis(end), _lanes(lanes), report.later_drivers
    again = {each.id: each for each in report.repeats}
    bars = [_bar(each, again.get(each.trial), _along(each, x, y)) for each in attempts]
    stalls = [
        PlotLine("stall", [(x.share(at), _height(each, y)) for at in stall])
        for each in attempts
        for stall in each.stalls
    ]
    return Plot(
        f"What {counted(lanes, 'worker')} did in {duration(end)}: {counted(len(attempts), 'attempt')}",
        x,
        y,
        lines=[*(upright(x.share(each.at)) for each in drivers), *bars, *stalls],
        points=_ends([each for each in attempts if each.outcome in LOST], x, y),
        labels=[Label((x.share(each.at), 1.0), each.what, "rung") for each in drivers],
        rows=max(LEAST_ROWS, ROWS_OF_LANE * lanes),
    )


def _lanes(count: int) -> Axis:
    """Return the axis of lanes; the first one is at the top."""
    return Axis("worker", ticks=tuple(Tick(1.0 - (at + 0.5) / count, str(at + 1)) for at in range(count)))


def _height(attempt: AttemptRow, y: Axis) -> float:
    return y.ticks[attempt.lane].at


def _along(attempt: AttemptRow, x: Axis, y: Axis) -> list[Spot]:
    return [(x.share(each), _height(attempt, y)) for each in (attempt.start, attempt.end)]


def _bar(attempt: AttemptRow, again: RepeatRow | None, spots: list[Spot]) -> PlotLine:
    """Return the bar of an attempt; `again` is the run it belongs to, if that trains a trial again."""
    look = "lost" if attempt.outcome in LOST else attempt.outcome
    ended = f", attempt {attempt.number}: {LOST[attempt.outcome]}" if attempt.outcome in LOST else ""
    if again is None:
        return PlotLine(f"bar {look}", spots, attempt.trial, f"trial {attempt.trial}{ended}" if ended else "")
    run = Repeat(of=again.of, purpose=again.purpose, seed=again.seed, split=again.split)
    return PlotLine(f"bar {look} again", spots, again.of, f"{run}{ended or _reached(again)}")


def _reached(again: RepeatRow) -> str:
    if again.score is None:
        return f": {again.state}"
    return f": {again.score:.4f} after {counted(again.epochs, 'epoch')}"


def _ends(lost: list[AttemptRow], x: Axis, y: Axis) -> list[Points]:
    """Return a mark where each of these attempts was lost."""
    return [Points("lost", [_along(each, x, y)[-1] for each in lost])] if lost else []


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
