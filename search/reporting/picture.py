"""The search in one picture: every trial's score by epoch, coloured by how it ended."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from search.record.summary import Summary
from search.record.trials import Trial, TrialState
from trainable.recipe.yamlfile import write_whole

if TYPE_CHECKING:  # 0.6 s to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS: dict[TrialState, str] = {
    "finished": "#1b7837",
    "stopped": "#b8b8b8",
    "diverged": "#c51b7d",
    "failed": "#d73027",
    "infeasible": "#dfc27d",
    "running": "#2166ac",
    "paused": "#92c5de",
    "queued": "#92c5de",
}
INCHES = (7.2, 4.0)
DOTS_PER_INCH = 144


def draw(summary: Summary, out: Path) -> None:
    """Write the picture of a search."""
    write_whole(out, picture_of(summary))


def picture_of(summary: Summary) -> bytes:
    """Return a PNG of the trials' curves; the best trial stands out, the documented recipe is dashed.

    Where latency was measured, a second panel has the objective against it.
    """
    from matplotlib.ticker import MaxNLocator  # 0.6 s to import

    figure, (axes, *others) = new_figure(2 if summary.frontier else 1)
    for each in others:
        draw_frontier(each, summary)
    labels: set[str] = set()
    for trial in sorted(summary.trials, key=lambda trial: trial.state == "finished"):
        _curve(axes, trial, summary, labels)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(summary.objective)
    axes.set_title(f"{summary.search}: {len(summary.trials)} trials, {summary.saved:.0%} of the epochs saved")
    if labels:
        axes.legend(frameon=False, loc="lower right" if summary.direction == "max" else "upper right")
    return png(figure)


def new_figure(panels: int = 1) -> tuple[Figure, list[Axes]]:
    """Return an empty figure and its panels' axes, from the left, without frames above and at the right."""
    from matplotlib.figure import Figure  # no pyplot: there is no screen to open

    width, height = INCHES
    figure = Figure(figsize=(panels * width, height), layout="constrained")
    axes = [figure.add_subplot(1, panels, number + 1) for number in range(panels)]
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH)
    return buffer.getvalue()


def _curve(axes: Axes, trial: Trial, summary: Summary, labels: set[str]) -> None:
    scored = ((each.epoch, each.score(summary.objective)) for each in trial.results)
    points = [(epoch, score) for epoch, score in scored if score is not None]
    if not points:
        return
    best = summary.best is not None and trial.id == summary.best.id
    label = f"best: trial {trial.id}" if best else "documented recipe" if trial.own else trial.state_in_words
    axes.plot(
        *zip(*points, strict=True),
        color="black" if best else COLOURS[trial.state],
        linewidth=2.2 if best else 1.2,
        linestyle="--" if trial.own else "-",
        marker="o" if trial.state in ("stopped", "diverged") else None,
        markevery=[-1],
        markersize=3.5,
        label=None if label in labels else label,
        zorder=3 if best else 2,
    )
    labels.add(label)


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
