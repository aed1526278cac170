"""Shows the frontier of the objective against latency: the trials that no other one beats in both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search.record.summary import Summary
from search.reporting.tables import Rows
from search.study.constraints import shown_cost

if TYPE_CHECKING:  # 0.6 s to import
    from matplotlib.axes import Axes

COLUMNS = ("latency_ms", "parameters", "memory_gib")


def frontier_table(summary: Summary) -> Rows:
    """Return one row for each trial of the frontier: what its network costs, and its objective."""
    rows = tuple(
        (
            str(trial.id),
            f"{trial.metrics[summary.objective]:.4f}",
            *(shown_cost(trial.costs[name]) for name in COLUMNS),
        )
        for trial in summary.frontier
    )
    return Rows("", ("trial", summary.objective, *COLUMNS), rows)


def draw_frontier(axes: Axes, summary: Summary) -> None:
    """Draw the finished trials by latency and objective, and the frontier as a line through its own."""
    measured = [trial for trial in summary.trials if trial.end == "finished" and trial.cost is not None]
    for trials, style, colour in ((measured, "o", "#b8b8b8"), (summary.frontier, "o-", "black")):
        latencies = [trial.costs["latency_ms"] for trial in trials]
        scores = [trial.metrics[summary.objective] for trial in trials]
        axes.plot(latencies, scores, style, color=colour, markersize=4)
    axes.set_xlabel("latency_ms")
    axes.set_ylabel(summary.objective)
    axes.set_title("frontier: no trial is both quicker and better")
    if (limit := summary.constraints.latency_ms) is not None:
        axes.axvline(limit.max, color="#d73027", linestyle=":", linewidth=1.2)
