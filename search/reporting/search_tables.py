"""Shows what a search has come to as tables: finalists, frontier, the audit of pruning, verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from search.learning.pruning_audit import WORTH, PruningAudit
from search.learning.verdict_words import counts, effect, fixed, promise
from search.record.finals import Finalist, Finals
from search.record.summary import Summary
from search.record.trials import Trial
from search.record.verdicts import Verdict, Verdicts
from search.reporting.tables import Rows, TableRow
from search.study.constraints import shown_cost
from spaces.domains import counted
from trainable.recipe.provenance import AGREE, sureness

OF_FINALISTS = (
    "finalist",
    "in the search",
    "with fresh seeds",
    "mean",
    "deviation",
    "estimate",
    "95 % interval",
)


def finals_table(finals: Finals, metric: str) -> Rows:
    """Return one row for each finalist: its score in the search, and what its runs say."""
    rows = tuple(_finalist_row(each, metric, is_winner=each == finals.winner) for each in finals.finalists)
    return Rows("", OF_FINALISTS, rows, whole=set(OF_FINALISTS))


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


def _finalist_row(finalist: Finalist, metric: str, *, is_winner: bool) -> tuple[str, ...]:
    known = finalist.estimate
    numbers = ("",) * 3 if known is None else map(_number, (known.mean, known.deviation, known.value))
    return (
        f"trial {finalist.trial}{', best' if is_winner else ''}",
        _number(finalist.score),
        ", ".join(_run_score(run, metric) for run in finalist.runs),
        *numbers,
        "" if known is None else str(known.interval or AGREE),
    )


def _run_score(run: Trial, metric: str) -> str:
    return _number(run.metrics[metric]) if run.end == "finished" else run.state


def _number(value: float) -> str:
    return f"{value:.4f}"


COSTS = ("latency_ms", "parameters", "memory_gib")


def frontier_table(summary: Summary) -> Rows:
    """Return one row for each trial of the frontier: what its network costs, and its objective."""
    rows = tuple(
        (
            str(trial.id),
            f"{trial.metrics[summary.objective]:.4f}",
            *(shown_cost(trial.costs[name]) for name in COSTS),
        )
        for trial in summary.frontier
    )
    return Rows("", ("trial", summary.objective, *COSTS), rows)


RANK_ALIKE = "all resamples rank alike"


def rungs_table(audit: PruningAudit) -> Rows:
    """Return one row for each rung: how well its scores rank the final ones."""
    rows = tuple(
        (str(each.epoch), f"{each.correlation:.2f}", _interval(each.low, each.high)) for each in audit.rungs
    )
    return Rows("", ("rung at epoch", "rank correlation with the end", "95 % interval"), rows)


def _interval(low: float | None, high: float | None) -> str:
    return RANK_ALIKE if low is None else f"{low:.2f} to {high:.2f}"


def graces_table(audit: PruningAudit) -> Rows:
    """Return one row for each first rung that could be taken."""
    rows = tuple((str(each.epoch), f"{each.worth:.0%}", f"{each.spent:.0%}") for each in audit.graces)
    return Rows("", ("first rung", "worth kept", "epochs trained"), rows)


def audit_lines(audit: PruningAudit, rungs: tuple[int, ...]) -> Iterator[str]:
    """Yield what the audit says, in sentences."""
    number = len(audit.trained)
    line = f"{counted(number, 'stopped trial')} of {audit.stopped} trained to the end: "
    if audit.better:
        these = ", ".join(map(str, audit.better))
        yield f"{line}{len(audit.better)} ended better than the best of the search, {audit.best:.4f}: {these}"
    else:
        yield f"{line}none ended better than the best of the search, {audit.best:.4f}"
        if (others := audit.stopped - number) > 0:
            yield f"the chance that any of the other {others} would have ended better: {audit.chance:.0%}"
    first = f"now the first rung is at epoch {rungs[0]}"
    if audit.grace is None:
        yield f"no first rung in the first half of a run keeps {WORTH:.0%} of a search's worth; {first}"
    else:
        yield (
            f"a first rung at epoch {audit.grace} or later keeps {WORTH:.0%} of a search's worth "
            f"(scheduler.grace_epochs: {audit.grace}); {first}"
        )


WORD_COLOURS = {"supported": "green", "contradicted": "red", "untested": "dim"}


def brief_table(verdicts: Verdicts) -> Rows:
    """Return one row for each rule with a clear verdict: the verdict, its size, and what the rule says."""
    return _verdict_table("", verdicts.clear)


def full_table(verdicts: Verdicts) -> Rows:
    """Return one row for each belief, with why it is untested; a line below lists the fixed values."""
    title = f"verdicts on the rules, from {verdicts.trials} trials: {counts(verdicts)}"
    caption = "\n".join(filter(None, (promise(verdicts), fixed(verdicts))))
    return _verdict_table(title, verdicts.beliefs, caption)


def _verdict_table(title: str, verdicts: Sequence[Verdict], caption: str = "") -> Rows:
    columns = ("rule", "verdict", "places of 100", "follow, depart", "why untested", "the rule says")
    rows = tuple(map(_verdict_row, verdicts))
    return Rows(title, columns, rows, head=3, whole=set(columns[:3]), caption=caption)


def _verdict_row(verdict: Verdict) -> TableRow:
    sides = f"{verdict.follow}, {verdict.depart}" if verdict.follow or verdict.depart else ""
    word = Text(verdict.word, style=WORD_COLOURS[verdict.word])
    return verdict.rule, word, effect(verdict), sides, verdict.why or "", verdict.says
