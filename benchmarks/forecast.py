"""How near a forecast comes to what the search then takes.

    python benchmarks/forecast.py

Each search runs in a process of its own, and says its forecast before its first trial; what it takes is the
time from then on until its end. Asked is that 9 of 10 forecasts are within 25 %. Results are kept as each
search ends; one that is there already is not run again. TUNEBOOK_DATA names the folder of the real images.

Each row is split, so that one sees where a forecast errs: the start, until the first epoch begins; the end,
after the last result; the trials between. What the same play says with the times of this very search's epochs
stands beside that: it errs only by how it plays. Other programs slow a search down, and nobody knows of them
before: the load is shown at the forecast and at the end. Ray gives way to other programs, by its niceness of
15: it is set to 0 here. The start and the end are forecast as the last searches here took, so the first row
of a new machine has the usual ones.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from report import described, in_own_process, measure_missing
from search.commands.asked import resolved_study, study_from
from search.commands.forecast import forecast_of
from search.commands.guests import driver
from search.deciding.forecast import Forecast, Places, forecast
from search.facts.beside_trials import beside_of
from search.facts.run_costs import TriedRuns
from search.learning.search import Search
from search.running.prepare import Prepared
from tests.lite_weights import write_weights
from trainable.bench import Bench
from trainable.recipe.network_cost import RunCost

CLOSE, MOST = 0.25, 0.9  # asked: so many forecasts are off by at most that
DIGITS = {"data.path": "digits", "budget.trials": 12, "budget.epochs": 20}
PHOTOGRAPHS = {
    "data.path": "sign-language-digits/Dataset",
    "data.image_size": 32,
    "base.model": {"kind": "resnet_small", "depth": 8, "width": 16},
    "budget.trials": 8,
    "budget.epochs": 8,
}
NUCLEI = {
    "data.path": "nuclei",
    "base.task": {"kind": "segmentation", "masks": {"values": "binary"}},
    "data.image_size": 64,
    "budget.trials": 8,
    "budget.epochs": 8,
}
SEARCHES: dict[str, dict[str, Any]] = {
    "digits, document": DIGITS,
    "digits, document, all to the end": {**DIGITS, "scheduler.kind": "none", "budget.trials": 6},
    "digits, wide": {**DIGITS, "space.name": "wide"},
    "digits, quick, 40 short trials": {
        **DIGITS,
        "space.name": "quick",
        "budget.trials": 40,
        "budget.epochs": 6,
    },
    "digits, three depths, paused at rungs": {
        **DIGITS,
        "scheduler.kind": "promotion",
        "space.overrides": {"model.depth": {"choice": [8, 14, 20]}},
    },
    "digits, one network, three finalists": {
        **DIGITS,
        "base.model": {"kind": "resnet_small", "depth": 14, "width": 16},
        "finalists": {"top": 2, "seeds": 2},
        "budget.trials": 8,
        "budget.epochs": 10,
    },
    "photographs, document": PHOTOGRAPHS,
    "photographs, wide": {**PHOTOGRAPHS, "space.name": "wide"},
    "photographs, finetune": {
        **PHOTOGRAPHS,
        "base.model": "WEIGHTS",
        "space.name": "finetune",
        "budget.trials": 6,
        "budget.epochs": 6,
    },
    "nuclei, segmentation": NUCLEI,
}


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(searched(SEARCHES[sys.argv[1]])))
        return
    measure_missing("forecast", _runs(), page)


def _runs() -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]:
    for name in SEARCHES:
        yield {"search": name}, partial(in_own_process, __file__, [name], {"RAY_worker_niceness": "0"})


def searched(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run one search; return its forecast, what it took from then on, and the load at both ends."""
    said: list[tuple[float, Prepared, Forecast, float]] = []

    def noted(prepared: Prepared) -> list[str]:
        found = forecast_of(prepared)
        said.append((time.perf_counter(), prepared, found, os.getloadavg()[0]))
        return [str(found)]

    with tempfile.TemporaryDirectory() as storage:
        settings = dict(settings)
        if not (path := Path(settings["data.path"])).is_absolute() and settings["data.path"] != "digits":
            settings["data.path"] = str(Path(os.environ["TUNEBOOK_DATA"]) / path)
        if settings.get("base.model") == "WEIGHTS":
            settings["base.model"] = _lite(Path(storage))
        study = study_from(None, {**settings, "storage": storage, "name": "timed"})
        driving = replace(driver(), bench=Bench(say=lambda line: print(line, file=sys.stderr)), plan=noted)
        state = driving.search(resolved_study(study))
        ended, now = time.perf_counter(), time.time()
        search = Search(Path(storage) / "timed")
        costs = list(costs_of(search))
        ((told, prepared, found, load),) = said
        beside = beside_of(search.summary.all_trials, now - (ended - told), now)
        assert beside is not None
    places = Places(found.at_once, beside=beside)
    tried = TriedRuns(costs=tuple(costs), tried=len(costs), slowed=1.0)
    again = forecast(prepared.study, prepared.pruning, prepared.final, tried, places)
    return {
        "state": state,
        "forecast": found.model_dump(),
        "seconds": ended - told,
        "start": beside.start_seconds,
        "end": beside.end_seconds,
        "by_own_epochs": again.seconds - beside.seconds,
        "load": [load, os.getloadavg()[0]],
    }


def costs_of(search: Search) -> Iterator[RunCost]:
    """Yield what the trials of a search took, the documented recipe's first."""
    for trial in search.summary.trials:
        if not trial.results:
            continue
        each = trial.results
        scoring = statistics.fmean(result.evaluation_seconds for result in each)
        training = statistics.fmean(result.epoch_seconds for result in each) - scoring
        yield RunCost(
            training_seconds=(max(0.0, training),) * search.study.budget.epochs,
            scoring_seconds=scoring,
            checkpoint_seconds=statistics.fmean(result.checkpoint_seconds or 0.0 for result in each),
            checkpoint_bytes=0,
            # the first trial of a process waits for its imports
            starting_seconds=min(1.0, each[0].starting_seconds or 0.0),
        )


def _lite(folder: Path) -> dict[str, Any]:
    """Return a model section with real weights of a small network, which a package ships."""
    name = write_weights(folder / "weights")
    return {"kind": "timm", "name": name, "weights": str(folder / "weights" / f"{name}.safetensors")}


def off(run: Mapping[str, Any]) -> float:
    """Return by what share a search took longer than was forecast; below 0 where it was quicker."""
    return float(run["seconds"] / run["forecast"]["seconds"] - 1.0)


def page(runs: Sequence[Mapping[str, Any]], where: Mapping[str, Any]) -> str:
    close = sum(abs(off(each)) <= CLOSE for each in runs)
    inside = sum(
        each["forecast"]["low_seconds"] <= each["seconds"] <= each["forecast"]["high_seconds"]
        for each in runs
    )
    rows = "\n".join(map(_row, runs))
    median = statistics.median(abs(off(each)) for each in runs)
    met = "met" if close >= MOST * len(runs) else "not met"
    return (
        "# How near a forecast comes\n\n"
        f"Of {len(runs)} searches {close} took what was forecast, within {CLOSE:.0%} (asked: 90%, {met}); "
        f"{inside} ended within the forecast's interval. The median forecast is off by {median:.0%}.\n\n"
        "| search | forecast, s | it took, s | off by | start + end, s (forecast) "
        "| its trials, s (forecast; played) | load |\n|-|-|-|-|-|-|-|\n"
        f"{rows}\n\n{described(where)}"
    )


def _row(run: Mapping[str, Any]) -> str:
    told, (before, after) = run["forecast"], run["load"]
    trained = run["seconds"] - run["start"] - run["end"]
    trials = told["seconds"] - told["beside_seconds"]
    interval = f"{told['low_seconds']:.0f} to {told['high_seconds']:.0f}"
    return (
        f"| {run['setting']['search']} | {told['seconds']:.0f} ({interval}) | {run['seconds']:.0f} "
        f"| {off(run):+.0%} | {run['start']:.0f} + {run['end']:.0f} ({told['beside_seconds']:.0f}) "
        f"| {trained:.0f} ({trials:.0f}; {run['by_own_epochs']:.0f}) | {before:.1f}, {after:.1f} |"
    )


if __name__ == "__main__":
    main()
