"""Measures how hard trials may be pruned: what early epochs say of the last, and ASHA over real curves.

    TUNEBOOK_DATA=FOLDER python benchmarks/pruning.py

There are two sources of curves. One is the table of 256 recipes on Fashion-MNIST (recipe_table.py), 9 epochs:
half of them drawn evenly over a wide box, half around the documents' rules. The other is LCBench's surrogate,
52 epochs, on nine tasks: draws that are even, and draws from priors around the best of 25 even ones. Searches
are orders of their recipes. The last table is what the product chooses (`search.deciding.pruning.suggested`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata, spearmanr

from offline import lcbench
from offline.pruning_page import page
from offline.search_task import SearchTask
from report import environment, write
from search.deciding.pruning import SAME_SHAPE, suggested
from search.deciding.pruning_replay import Curves, Order, replayed
from search.deciding.scheduler import rungs
from spaces.domains import is_number
from spaces.priors import Confidence, Normal, Prior, Uniform, quantile_value

TABLE = Path(__file__).parent / "tables" / "fashion_mnist_4000.jsonl"
PHOTOGRAPHS = TABLE.parent / "photographs_1442.jsonl"
SCHEDULES = ("cosine", "poly", "onecycle", "constant")


class Draws(NamedTuple):
    """Names recipes of the table: of a half, with these schedules; and what the product would know.

    `bits` are those by which the draws narrow the table's box: several around the rules.
    """

    half: str
    warmup: float
    bits: float
    schedules: tuple[str, ...] = SCHEDULES


DRAWS = {
    "wide": Draws("wide", 3.0, 0.0),
    "rules": Draws("rules", 0.9, 8.0),
    "rules, one shape": Draws("rules", 0.9, 8.0, ("cosine", "poly")),
}
TRIALS = (8, 16, 32, 48)
RESAMPLES, RESAMPLED_TABLES = 2_000, 40
LCBENCH_PRIORS: dict[str, Confidence | None] = {"even": None, "medium": "medium", "high": "high"}
LCBENCH_DRAWS = 300


def main() -> None:
    options = _options()
    where = environment(1)
    lines = [json.loads(line) for line in options.table.read_text().splitlines()]
    chosen = {name: [line for line in lines if belongs(line, draws)] for name, draws in DRAWS.items()}
    curves = {name: accuracies(of_draws) for name, of_draws in chosen.items()}
    tasks = [lcbench.lcbench(instance) for instance in lcbench.instances()[lcbench.CHOSEN]]
    surrogate = {prior: [lcbench_curves(task, prior) for task in tasks] for prior in LCBENCH_PRIORS}
    record = {
        "environment": where,
        "orders": options.orders,
        "resampled_tables": RESAMPLED_TABLES,
        "lcbench_draws": LCBENCH_DRAWS,
        "lcbench_orders": options.orders // 10,
        "recipes": {name: len(of_draws) for name, of_draws in chosen.items()},
        "correlations": {name: correlations(each) for name, each in curves.items()},
        "schedules": {name: schedules(chosen[name], curves[name]) for name in ("wide", "rules")},
        "grid": {
            name: grid(each, (1, 2, 3, 4, 5), (2, 3, 4), options.orders) for name, each in curves.items()
        },
        "chosen": {
            name: [chosen_for(DRAWS[name], each, count, options.orders) for count in TRIALS]
            for name, each in curves.items()
        },
        "again": [
            *again("rules, one shape", [curves["rules, one shape"]], 2, options.orders),
            *again("photographs", [photographs()], 3, options.orders),
            *again("LCBench, medium", surrogate["medium"], 7, options.orders // 10),
        ],
        "lcbench": {
            prior: lcbench_grid(found, (2, 4, 7, 10, 13), (2, 3), options.orders // 10)
            for prior, found in surrogate.items()
        },
    }
    write(options.name, record, page(record))


# --- what early epochs say --------------------------------------------------------------------------------


def belongs(line: dict[str, Any], draws: Draws) -> bool:
    return line["half"] == draws.half and line["values"]["schedule.kind"] in draws.schedules


def accuracies(lines: Sequence[dict[str, Any]]) -> Curves:
    """Return the validation accuracy after each epoch; 0 from the epoch in which a run diverged."""
    epochs = max(len(line["curve"]) for line in lines)
    return np.array(
        [[score for score, _ in line["curve"]] + [0.0] * (epochs - len(line["curve"])) for line in lines]
    )


def correlations(curves: Curves) -> list[dict[str, Any]]:
    """Return Spearman's correlation of each epoch's scores with the last one's, also of the best third."""
    finals = curves[:, -1]
    best = curves[finals >= np.quantile(finals, 2 / 3)]
    return [
        {"epoch": epoch + 1, "all": interval(curves, epoch), "best third": interval(best, epoch)}
        for epoch in range(curves.shape[1] - 1)
    ]


def interval(curves: Curves, epoch: int) -> tuple[float, float, float]:
    """Return the correlation, with the ends of its 95 % bootstrap interval over recipes."""
    random = np.random.default_rng(0)
    picks = random.integers(len(curves), size=(RESAMPLES, len(curves)))
    resampled = [_correlation(curves[pick], epoch) for pick in picks]
    low, high = np.nanpercentile(resampled, [2.5, 97.5])
    return _correlation(curves, epoch), float(low), float(high)


def schedules(lines: Sequence[dict[str, Any]], curves: Curves) -> dict[str, Any]:
    """Return by schedule how much better its recipes rank at the end than at an epoch, as a share of all.

    It also returns the correlation of an epoch's scores with the last one's among recipes of one schedule, on
    average.
    """
    kinds = np.array([line["values"]["schedule.kind"] for line in lines])
    standing = (rankdata(curves, axis=0) - 1) / (len(curves) - 1)
    rises = {
        kind: {
            "recipes": int((kinds == kind).sum()),
            "rise": [_mean((standing[:, -1] - at)[kinds == kind]) for at in standing.T[:-1]],
        }
        for kind in SCHEDULES
    }
    within = [
        sum(_correlation(curves[kinds == kind], epoch) * (kinds == kind).mean() for kind in SCHEDULES)
        for epoch in range(curves.shape[1] - 1)
    ]
    return {"kinds": rises, "within": within}


def _correlation(curves: Curves, epoch: int) -> float:
    return float(spearmanr(curves[:, epoch], curves[:, -1]).statistic)


def _mean(values: Curves) -> tuple[float, float, float]:
    """Return the mean with the ends of its 95 % bootstrap interval."""
    random = np.random.default_rng(0)
    means = values[random.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(values.mean()), float(low), float(high)


# --- replays ----------------------------------------------------------------------------------------------


def grid(curves: Curves, graces: Sequence[int], factors: Sequence[int], count: int) -> list[dict[str, Any]]:
    """Replays every first rung with every factor, at 16 and 48 trials."""
    return [
        {"trials": trials, "grace": grace, "factor": factor, **found._asdict()}
        for trials in (16, 48)
        for orders in [orders_of(len(curves), trials, count)]
        for grace in graces
        for factor in factors
        for found in [replayed(curves, orders, rungs(grace, factor, curves.shape[1]), factor)]
    ]


def photographs() -> Curves:
    """Return draws of the space `document` on photographs (document_draws.py): accuracies by epoch."""
    return np.array([json.loads(line)["curve"] for line in PHOTOGRAPHS.read_text().splitlines()])


def again(name: str, tables: Sequence[Curves], first: int, count: int) -> list[dict[str, Any]]:
    """Compare alike trials once, or at a second rung too; return means over the tables."""
    cells = []
    for trials in (16, 32):
        for steps, factor in (((first,), 3), ((first, 3 * first), 3), ((first, 2 * first), 2)):
            found = [replayed(each, orders_of(len(each), trials, count), steps, factor) for each in tables]
            spent, _, worth = np.mean(np.array(found), axis=0).tolist()
            of = {"recipes": name, "trials": trials, "rungs": steps, "factor": factor}
            cells.append({**of, "spent": spent, "worth": worth})
    return cells


def chosen_for(draws: Draws, curves: Curves, trials: int, count: int) -> dict[str, Any]:
    """Return the product's choice for such draws, and its results with intervals over resampled tables."""
    epochs, uneven = curves.shape[1], not SAME_SHAPE.issuperset(draws.schedules)
    suggestion = suggested(epochs, draws.warmup, draws.bits, uneven=uneven)
    factor, steps = suggestion.factor, suggestion.rungs(suggestion.factor, epochs)
    found = replayed(curves, orders_of(len(curves), trials, count), steps, factor)
    random = np.random.default_rng(1)
    tables = [curves[random.integers(len(curves), size=len(curves))] for _ in range(RESAMPLED_TABLES)]
    again = [replayed(table, orders_of(len(table), trials, count // 4), steps, factor) for table in tables]
    ends = np.percentile(np.array(again), [2.5, 97.5], axis=0)
    return {
        "trials": trials,
        "rungs": steps,
        "factor": factor,
        **{
            name: (value, *end)
            for name, value, end in zip(found._fields, found, ends.T.tolist(), strict=True)
        },
    }


def orders_of(recipes: int, trials: int, count: int) -> list[Order]:
    random = np.random.default_rng(0)
    return [random.permutation(recipes)[:trials] for _ in range(count)]


# --- LCBench ----------------------------------------------------------------------------------------------


def lcbench_curves(task: SearchTask, prior: str) -> Curves:
    """Return curves of draws that are even, or from priors around the best of 25 even ones."""
    train, confidence = task.begin(), LCBENCH_PRIORS[prior]
    priors: dict[str, Prior] = {each.path: Uniform() for each in task.space.dimensions}
    if confidence is not None:
        best = max(task.even_draws(25, seed=0), key=task.final).values
        priors = {path: Normal(value, confidence) for path, value in best.items() if is_number(value)}
    random = np.random.default_rng(0)
    rows = [
        {
            each.path: quantile_value(each.domain, priors[each.path], random.random())
            for each in task.space.dimensions
        }
        for _ in range(LCBENCH_DRAWS)
    ]
    return np.array([train(row).curve for row in rows])


def lcbench_grid(
    found: Sequence[Curves], graces: Sequence[int], factors: Sequence[int], count: int
) -> list[dict[str, Any]]:
    """Return the grid's means over tasks; losses have no common unit, so only their worth is returned."""
    grids = [grid(curves, graces, factors, count) for curves in found]
    return [
        {
            **{name: cells[0][name] for name in ("trials", "grace", "factor")},
            "spent": float(np.mean([cell["spent"] for cell in cells])),
            "worth": float(np.mean([cell["worth"] for cell in cells])),
            "least": min(cell["worth"] for cell in cells),
        }
        for cells in zip(*grids, strict=True)
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Replay pruning over curves that were trained once.")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--orders", type=int, default=1_000)
    parser.add_argument("--name", default="pruning")
    return parser.parse_args()


if __name__ == "__main__":
    main()
