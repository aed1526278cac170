"""The page and the picture of the search-quality benchmark, from regrets by arm and task."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from offline.arms import ARMS, BASELINE, REDUCTION_FACTOR, Settings
from offline.beliefs import DRAWS
from offline.claims import NEW, RIGHT, THIRD, Regrets, best_peer, claims
from offline.peer_arms import PEERS
from offline.regret import (
    Array,
    Interval,
    difference,
    first_reach,
    mean_curve,
    over_tasks,
    reach,
    record,
    speed_up,
)
from report import described

RANDOM = "random"
RANDOM_TRAININGS = 16
SHOWN = (THIRD, 1.0)
LINES = {
    "random": "#b8b8b8",
    "qmc": "#80cdc1",
    "tpe": "#2166ac",
    "prior-only": "#f4a582",
    "prior-tpe": "#b2182b",
    "mutation": "#fdae61",
    "gp": "#762a83",
    "auto": "#000000",
    "optuna-gp": "#4393c3",
    "syne-tune-asha": "#d9f0a3",
    "syne-tune-bohb": "#78c679",
    "syne-tune-mobster": "#238443",
    "smac": "#8c510a",
    "neps-hyperband": "#dfc27d",
    "neps-priorband": "#e7298a",
}
STYLES = {"right": "-", "off": "--", "adversarial": ":", "": "-"}
PEERS_METHOD = (
    "**Peers** are other people's searches, each in an environment of its own (pinned beside its program "
    "in benchmarks/offline/peers), through its public interface, at its own defaults but for factor 3, at "
    "least 3 epochs and at most a whole training (SMAC: 5 first configurations, as in its example). They "
    "search in the same simulation: an epoch costs 1, a worker asks as soon as it is free, and a trial "
    "that is promoted later goes on from its last epoch and pays for the epochs that it lacks. Rungs are "
    "their own: of 52 epochs, Syne Tune and Optuna stop at 3, 9 and 27, NePS promotes at 5 and 17, SMAC at "
    "6 and 17 (it asks for 5.8 and 17.3). Optuna and SMAC know conditions between dimensions; NePS and "
    "Syne Tune always draw all dimensions, and those that do not apply are left out of the training. On "
    "the two tables a trial gets the nearest row that no trial had: our samplers hear that row's values, "
    "peers only its scores. PriorBand gets the priors that ours get, under the one of its words that gives "
    "a range the same deviation, and trains their mode first, too. A training that diverged is a crash in "
    "each one's own terms; SMAC is told the worst score so far with it."
)


def page(
    found: Regrets,
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    settings: Settings,
    shares: Array,
    where: Mapping[str, Any] | None = None,
    picture: str | None = None,
) -> str:
    """Return the whole page; without `where` and `picture`, what a trial of a new arm prints."""
    parts = [
        "# The quality of a search, offline",
        _method(found, settings),
        f"![Mean regret over the budget]({picture})" if picture else "",
        "## Asked\n\n" + _asked(found, shares),
        _schedulers(found, shares),
        "## Arms\n\n" + _arms(found, runs, settings, shares),
        "## Tasks\n\n" + _tasks(found, shares),
        described(where) if where else "",
    ]
    return "\n\n".join(part for part in parts if part).rstrip() + "\n"


def summary(found: Regrets, shares: Array) -> dict[str, Any]:
    """Return the page's data: mean curves with intervals, and every seed's final regret."""
    end = int(np.searchsorted(shares, 1.0))
    every = slice(3, None, 4)
    arms = {}
    for name, tasks in found.items():
        mean, low, high = (_rounded(each[every]) for each in mean_curve(over_tasks(tasks)))
        final = {task: _rounded(runs[:, end]) for task, runs in tasks.items()}
        arms[name] = {"mean": mean, "low": low, "high": high, "final_by_seed": final}
    return {"shares": _rounded(shares[every]), "regret": arms}


def draw(found: Regrets, shares: Array, out: Path) -> None:
    """Write a PNG of each arm's mean regret over all tasks, without and with priors.

    The baseline, the best peer and the new sampler have their intervals.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    marked = (BASELINE, best_peer(found, shares), NEW, RIGHT)
    for axes, title in zip(panels, ("without priors", "with priors"), strict=True):
        for name, tasks in found.items():
            if name != BASELINE and bool(_worth(name)) != (title == "with priors"):
                continue
            mean, low, high = mean_curve(over_tasks(tasks))
            colour, style = _look(name)
            axes.plot(shares, mean, style, color=colour, label=name, linewidth=1.4)
            if name in marked:
                axes.fill_between(shares, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.axvline(1.0, color="#dddddd", zorder=0)
        axes.set(title=title, xlabel="share of the budget", yscale="log", xlim=(0, shares[-1]))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=6)
    panels[0].set_ylabel("mean regret")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=144)


def _method(found: Regrets, settings: Settings) -> str:
    tasks = found[BASELINE]
    peers = f"\n\n{PEERS_METHOD}" if any(name in PEERS for name in found) else ""
    return (
        f"{len(tasks)} tasks, {_seeds(tasks)} seeds, {settings.workers} workers in simulated time; each "
        f"search has the epochs of {settings.trainings} whole trainings and is followed to "
        f"{settings.beyond:g} times that. ASHA: first rung after 3 epochs, reduction factor "
        f"{REDUCTION_FACTOR}; arms with `promotion` pause trials where the others stop them, and `model` "
        "forecasts how they end. Regret: the best final score known less the search's best so far, over what "
        "separates the median of 200 even draws from the best known. A trial that diverged costs its epochs; "
        "one that is in flight at the end counts for nothing. Intervals: 95 %, bootstrap over seeds; two "
        "arms are compared over the seeds that both have. "
        f"The baseline is `{BASELINE}`.\n\n"
        f"Priors are centred on the best of {DRAWS} even draws on the task (`right`), ten times off that "
        "(`off`; a third of a linear range, another option), or on the worst of them (`adversarial`), with "
        f"{settings.confidence} confidence; those draws are not charged. Our arms with priors train their "
        f"mode first, unpruned, as a search trains the documented recipe.{peers}"
    )


def _asked(found: Regrets, shares: Array) -> str:
    """Return whether the new sampler does what is asked."""
    rows = [
        f"| {each.arm} | {each.asked} | {each.limit:g} | {_figure(each.figure)} | {each.met} |"
        for each in claims(found, shares)
    ]
    if not rows:
        return "None of the arms of which something is asked is among these."
    return (
        f"{_table(('arm', 'asked', 'at most', 'measured', 'met'), rows)}\n\n"
        "Met: the whole interval is at most that; on average: the mean is. What a proposal costs: "
        "[asks.md](asks.md)."
    )


def _schedulers(found: Regrets, shares: Array) -> str:
    """Return what pausing and forecasts change against ASHA, with the same sampler and the same seeds."""
    rows = []
    kinds = {name: ARMS[name].scheduler for name in found if name in ARMS}
    twins = {name: name.replace(f"+{kind}", "+asha") for name, kind in kinds.items() if kind != "asha"}
    for name, twin in twins.items():
        if twin not in found:
            continue
        here, there = over_tasks(found[name]), over_tasks(found[twin])
        apart = (difference(here, there, share, shares) for share in SHOWN)
        cells = (f"{each.value:+.3f} ({each.low:+.3f} to {each.high:+.3f})" for each in apart)
        rows.append(f"| {name} less {twin} | {' | '.join(cells)} |")
    heads = ("mean regret, of the same seeds", "at a third", "at the budget's end")
    return "## Other schedulers against ASHA\n\n" + _table(heads, rows) if rows else ""


def _arms(
    found: Regrets, runs: Mapping[str, Sequence[Mapping[str, Any]]], settings: Settings, shares: Array
) -> str:
    baseline, best = found[BASELINE], best_peer(found, shares)
    rows = []
    for name, tasks in found.items():
        mean, low, high = mean_curve(over_tasks(tasks))
        cells = [str(_seeds(tasks))]
        for share in SHOWN:
            at = int(np.searchsorted(shares, share))
            cells.append(f"{mean[at]:.3f} ({low[at]:.3f} to {high[at]:.3f})")
        cells += [_reached(found, name, other, shares) for other in (BASELINE, best)]
        cells.append(_faster(found, name, settings, shares))
        cells.append("/".join(str(len(each)) for each in record(tasks, baseline, shares).values()))
        rows.append(f"| {name} | {' | '.join(cells)} | {_trials(runs[name])} | {_cpu(runs[name])} |")
    heads = (
        "arm",
        "seeds",
        "mean regret at a third",
        "at the budget's end",
        "share of the budget to the baseline's final",
        f"to that of {best}, the best peer" if best else "to the best peer's",
        f"times faster than random to its mean after {RANDOM_TRAININGS} trainings",
        "tasks better/equal/worse than the baseline",
        "trials (finished, stopped, diverged)",
        "CPU s a search",
    )
    return _table(heads, rows)


def _tasks(found: Regrets, shares: Array) -> str:
    """Return each task's final regrets, when the baseline's is reached, and which arm loses where."""
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


def _reached(found: Regrets, name: str, other: str | None, shares: Array) -> str:
    if other is None:
        return ""
    return _share(reach(over_tasks(found[name]), over_tasks(found[other]), 1.0, shares), shares)


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


def _cpu(runs: Sequence[Mapping[str, Any]]) -> str:
    return f"{statistics.fmean(run['cpu_seconds'] for run in runs):.0f}"


def _seeds(tasks: Mapping[str, Array]) -> int:
    return len(next(iter(tasks.values())))


def _figure(figure: Interval) -> str:
    return f"{figure.value:.3f} ({figure.low:.3f} to {figure.high:.3f})"


def _share(figure: Interval, shares: Array) -> str:
    value, low, high = (_plain_share(each, shares) for each in figure)
    return f"{value} ({low} to {high})"


def _plain_share(share: float, shares: Array) -> str:
    return f"{share:.2f}" if math.isfinite(share) else f"> {shares[-1]:.2f}"


def _look(name: str) -> tuple[str, str]:
    family = max((each for each in LINES if name.startswith(each)), key=len)
    if name in ARMS and ARMS[name].scheduler != "asha":
        return LINES[family], "-."
    plain = name.startswith("tpe-plain") or name == RANDOM
    return LINES[family], "--" if plain else STYLES[_worth(name)]


def _worth(name: str) -> str:
    """Return which priors an arm has, by its name: right, off, adversarial or none."""
    return name.partition(" ")[2]


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    return "\n".join([f"| {' | '.join(heads)} |", "|" + "-|" * len(heads), *rows])


def _rounded(values: Array) -> list[float]:
    return [round(float(each), 5) for each in values]
