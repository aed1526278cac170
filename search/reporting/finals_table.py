"""Shows what the finalists' runs with fresh seeds have come to: a table, and a line on the winner."""

from __future__ import annotations

from search.record.finals import Finalist, Finals
from search.record.trials import Trial
from search.reporting.tables import Rows
from spaces.domains import counted
from trainable.recipe.provenance import AGREE, sureness

COLUMNS = ("finalist", "in the search", "with fresh seeds", "mean", "deviation", "estimate", "95 % interval")


def finals_table(finals: Finals, metric: str) -> Rows:
    """Return one row for each finalist: its score in the search, and what its runs say."""
    rows = tuple(_row(each, metric, is_winner=each == finals.winner) for each in finals.finalists)
    return Rows("", COLUMNS, rows, whole=set(COLUMNS))


def winner_line(finals: Finals, metric: str) -> str:
    """Return in a sentence how good the winner is, and by how much the search has flattered it.

    It is empty as long as runs are going on.
    """
    if not finals.over:
        return ""
    winner = finals.winner
    if winner is None or (known := winner.estimate) is None or (gap := winner.gap) is None:
        return "no finalist has finished with two fresh seeds; the best trial is that of the search"
    return (
        f"best recipe: {metric} {known.value:.4f} ({sureness(*known.bounds)}) over "
        f"{counted(len(known.scores), 'fresh seed')}, of trial {winner.trial}; the search's own figure was "
        f"{abs(gap):.4f} {'above' if gap >= 0.0 else 'below'} this"
    )


def _row(finalist: Finalist, metric: str, *, is_winner: bool) -> tuple[str, ...]:
    known = finalist.estimate
    numbers = ("",) * 3 if known is None else map(_number, (known.mean, known.deviation, known.value))
    return (
        f"trial {finalist.trial}{', best' if is_winner else ''}",
        _number(finalist.score),
        ", ".join(_score(run, metric) for run in finalist.runs),
        *numbers,
        "" if known is None else str(known.interval or AGREE),
    )


def _score(run: Trial, metric: str) -> str:
    return _number(run.metrics[metric]) if run.end == "finished" else run.state


def _number(value: float) -> str:
    return f"{value:.4f}"
