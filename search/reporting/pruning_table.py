"""Shows what the audit of pruning has found: how early scores rank final ones, and when to compare first."""

from __future__ import annotations

from collections.abc import Iterator

from search.learning.pruning_audit import WORTH, PruningAudit
from search.reporting.tables import Rows
from spaces.domains import counted

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
