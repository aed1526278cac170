"""Writes the page and the picture of the search-quality benchmark, from regrets by arm and task."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from offline.arms import ARMS, BASELINE, REDUCTION_FACTOR, Settings
from offline.beliefs import DRAWS
from offline.regret import Array, Interval, first_reach, mean_curve, over_tasks, reach, record, speed_up
from report import described

Regrets = Mapping[str, Mapping[str, Array]]
"""It holds regrets by arm and task, one run a row, over shares of the budget."""

ASKED = {"prior-tpe+asha right": 1 / 3, "prior-tpe+asha adversarial": 1.5}
"""By this share of its own budget an arm must reach the baseline's final mean regret."""
RANDOM = "random"
RANDOM_TRAININGS = 16
SHOWN = (1 / 3, 1.0)
LINES = {
    "random": "#b8b8b8",
    "qmc": "#80cdc1",
    "tpe": "#2166ac",
    "prior-only": "#f4a582",
    "prior-tpe": "#b2182b",
}
STYLES = {"right": "-", "off": "--", "adversarial": ":", None: "-"}


def page(
    found: Regrets,
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    settings: Settings,
    shares: Array,
    where: Mapping[str, Any] | None = None,
    picture: str | None = None,
) -> str:
    """Returns the whole page; without `where` and `picture`, what a trial of a new arm prints."""
    parts = [
        "# The quality of a search, offline",
        _method(found, settings),
        f"![Mean regret over the budget]({picture})" if picture else "",
        "## Asked\n\n" + _asked(found, shares),
        "## Arms\n\n" + _arms(found, runs, settings, shares),
        "## Tasks\n\n" + _tasks(found, shares),
        described(where) if where else "",
    ]
    return "\n\n".join(part for part in parts if part).rstrip() + "\n"


def summary(found: Regrets, shares: Array) -> dict[str, Any]:
    """Returns the page's data: mean curves with intervals, and every seed's final regret."""
    end = int(np.searchsorted(shares, 1.0))
    every = slice(3, None, 4)
    arms = {}
    for name, tasks in found.items():
        mean, low, high = (_rounded(each[every]) for each in mean_curve(over_tasks(tasks)))
        final = {task: _rounded(runs[:, end]) for task, runs in tasks.items()}
        arms[name] = {"mean": mean, "low": low, "high": high, "final_by_seed": final}
    return {"shares": _rounded(shares[every]), "regret": arms}


def draw(found: Regrets, shares: Array, out: Path) -> None:
    """Writes a PNG of each arm's mean regret over all tasks, with intervals of the baseline and the asked."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    for name, tasks in found.items():
        mean, low, high = mean_curve(over_tasks(tasks))
        colour, style = _look(name)
        axes.plot(shares, mean, style, color=colour, label=name, linewidth=1.4)
        if name == BASELINE or name in ASKED:
            axes.fill_between(shares, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.axvline(1.0, color="#dddddd", zorder=0)
    axes.set(xlabel="share of the budget", ylabel="mean regret", yscale="log", xlim=(0, shares[-1]))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=7)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=144)


def _method(found: Regrets, settings: Settings) -> str:
    tasks = found[BASELINE]
    seeds = len(next(iter(tasks.values())))
    return (
        f"{len(tasks)} tasks, {seeds} seeds, {settings.workers} workers in simulated time; each search has "
        f"the epochs of {settings.trainings} whole trainings and is followed to {settings.beyond:g} times "
        f"that. ASHA: first rung after 3 epochs, reduction factor {REDUCTION_FACTOR}; arms with `promotion` "
        "pause trials where the others stop them. Regret: the best final score known less the search's best "
        "so far, over what separates the median of 200 even draws from the best known. A trial that diverged "
        "costs its epochs; one that is in flight at the end counts for nothing. "
        "Intervals: 95 %, bootstrap over seeds. "
        f"The baseline is `{BASELINE}`.\n\n"
        f"Priors are centred on the best of {DRAWS} even draws on the task (`right`), ten times off that "
        "(`off`; a third of a linear range, another option), or on the worst of them (`adversarial`), with "
        f"{settings.confidence} confidence; those draws are not charged. Arms with priors train their mode "
        "first, unpruned, as a search trains the documented recipe."
    )


def _asked(found: Regrets, shares: Array) -> str:
    """Returns whether arms reach what is asked, against the baseline and the other arms without priors."""
    rivals = [name for name in found if ARMS[name].priors is None and ARMS[name].pruned and name != BASELINE]
    rows = []
    for name, asked in ASKED.items():
        for rival in [BASELINE, *rivals] if name in found else []:
            figure = reach(over_tasks(found[name]), over_tasks(found[rival]), 1.0, shares)
            met = "yes" if figure.value <= asked + 1e-9 else "no"
            rows.append(f"| {name} | {asked:.2f} | {rival} | {_share(figure, shares)} | {met} |")
    heads = ("arm", "asked: at most", "against", "share of the budget to that arm's final mean regret", "met")
    return _table(heads, rows)


def _arms(
    found: Regrets, runs: Mapping[str, Sequence[Mapping[str, Any]]], settings: Settings, shares: Array
) -> str:
    baseline = found[BASELINE]
    rows = []
    for name, tasks in found.items():
        mean, low, high = mean_curve(over_tasks(tasks))
        cells = []
        for share in SHOWN:
            at = int(np.searchsorted(shares, share))
            cells.append(f"{mean[at]:.3f} ({low[at]:.3f} to {high[at]:.3f})")
        cells.append(_share(reach(over_tasks(tasks), over_tasks(baseline), 1.0, shares), shares))
        cells.append(_faster(found, name, settings, shares))
        cells.append("/".join(str(len(each)) for each in record(tasks, baseline, shares).values()))
        rows.append(f"| {name} | {' | '.join(cells)} | {_trials(runs[name])} |")
    heads = (
        "arm",
        "mean regret at a third",
        "at the budget's end",
        "share of the budget to the baseline's final",
        f"times faster than random to its mean after {RANDOM_TRAININGS} trainings",
        "tasks better/equal/worse",
        "trials (finished, stopped, diverged)",
    )
    return _table(heads, rows)


def _tasks(found: Regrets, shares: Array) -> str:
    """Returns each task's final regrets, when the baseline's is reached, and which arm loses where."""
    end = int(np.searchsorted(shares, 1.0))
    rows = []
    for task, baseline in found[BASELINE].items():
        cells = []
        for tasks in found.values():
            runs = tasks[task]
            reached = first_reach(runs.mean(axis=0), baseline[:, end].mean(), shares)
            cells.append(f"{runs[:, end].mean():.3f}, {_plain_share(reached, shares)}")
        rows.append(f"| {task} | {' | '.join(cells)} |")
    losses = [
        f"- {name}: {', '.join(lost)}"
        for name, tasks in found.items()
        if (lost := record(tasks, found[BASELINE], shares)["worse"])
    ]
    return (
        "Mean final regret, and the share of the budget at which the arm's mean regret is first the "
        f"baseline's final one.\n\n{_table(('task', *found), rows)}\n\n"
        f"Worse than the baseline at the end, by an interval without 0:\n\n{chr(10).join(losses) or '- none'}"
    )


def _faster(found: Regrets, name: str, settings: Settings, shares: Array) -> str:
    if RANDOM not in found:
        return ""
    at = RANDOM_TRAININGS / settings.trainings
    if not 0 < at <= shares[-1]:
        return ""
    figure = speed_up(over_tasks(found[name]), over_tasks(found[RANDOM]), at, shares)
    value, low, high = (f"{each:.1f}" if each else f"< {at / shares[-1]:.1f}" for each in figure)
    return f"{value} ({low} to {high})"


def _trials(runs: Sequence[Mapping[str, Any]]) -> str:
    means = [
        statistics.fmean(run["ends"].get(end, 0) for run in runs)
        for end in ("finished", "stopped", "diverged")
    ]
    trials = statistics.fmean(run["trials"] for run in runs)
    return f"{trials:.0f} ({', '.join(f'{each:.0f}' for each in means)})"


def _share(figure: Interval, shares: Array) -> str:
    value, low, high = (_plain_share(each, shares) for each in figure)
    return f"{value} ({low} to {high})"


def _plain_share(share: float, shares: Array) -> str:
    return f"{share:.2f}" if math.isfinite(share) else f"> {shares[-1]:.2f}"


def _look(name: str) -> tuple[str, str]:
    family = max((each for each in LINES if name.startswith(each)), key=len)
    if ARMS[name].scheduler.pauses:
        return LINES[family], "-."
    plain = name.startswith("tpe-plain") or name == RANDOM
    return LINES[family], "--" if plain else STYLES[ARMS[name].priors]


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    return "\n".join([f"| {' | '.join(heads)} |", "|" + "-|" * len(heads), *rows])


def _rounded(values: Array) -> list[float]:
    return [round(float(each), 5) for each in values]
