"""Measures whether the numbers of finalists hold: in how many searches the interval has the recipe's mean.

    TUNEBOOK_DATA=FOLDER python benchmarks/finalists.py [--only digits] [--report]

On **tables** a recipe has been trained with many seeds, once (benchmarks/tables/seeds_*.jsonl). A search is
replayed: it scores 16 of the recipes with one seed, its best three are scored with three other seeds, and the
mean over the seeds that are left is the truth. **Real searches** are whole ones, of 16 trials with
`finalists: {top: 3, seeds: 3}`; then their winner is trained with eight more seeds, on the same split or,
where the finalists had fresh splits, on fresh ones, and scored on the test part too. Either leaves files, so
what was cut short goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recipe_table import BASE, TABLE
from report import RESULTS, described, environment, portable, write
from search.learning.search import Search
from search.record.finals import Interval, estimated
from trainable.data.assembly import load
from trainable.data.dataset import DataSet
from trainable.recipe import Recipe
from trainable.run import make_run

IMAGES = Path(os.environ.get("TUNEBOOK_DATA", "."))
TABLES = TABLE.parent
RUNS = RESULTS / "finalists"
TRIALS, TOP, RUNS_EACH, MORE = 16, 3, 3, 8
RECIPES, SEEDS = 20, 12
REPLAYS = 4_000
Scores = NDArray[np.float64]
CHEAP = ("--set", "base.model={kind: resnet_small, depth: 8, width: 8}", "--set", "base.precision.kind=fp32")
DATA = {
    "digits": ["--data", "digits", "--epochs", "8", *CHEAP],
    "photographs": [
        *("--data", str(IMAGES / "sign-language-digits" / "Dataset"), "--set", "data.image_size=32"),
        *("--epochs", "8", "--set", "base.model={kind: resnet_small, depth: 8, width: 8, stem_stride: 2}"),
        *CHEAP[2:],
    ],
}
TABLED = ("digits",)
SEARCHES = {
    ("digits", "same"): 10,
    ("digits", "fresh"): 10,
    ("photographs", "same"): 10,
}


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    RUNS.mkdir(parents=True, exist_ok=True)
    for data in [options.only] if options.only else list(DATA):
        if not options.report:
            if data in TABLED:
                _fill_table(data)
            for (name, splits), count in SEARCHES.items():
                for seed in range(count) if name == data else ():
                    file = RUNS / f"{data}-{splits}-{seed}.json"
                    if seed % options.parts == options.part and not file.exists():
                        file.write_text(json.dumps(run(data, splits, seed)) + "\n")
    if options.parts == 1:
        _report()


# --- tables -------------------------------------------------------------------------------------------


def _table_file(data: str) -> Path:
    return TABLES / f"seeds_{data.replace('-', '_')}.jsonl"


def _fill_table(data: str) -> None:
    """Train what a table lacks: a line for each recipe and seed, with its last validation accuracy."""
    file = _table_file(data)
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(line["recipe"], line["seed"]) for line in lines}
    missing = [(r, s) for s in range(SEEDS) for r in range(RECIPES) if (r, s) not in done]
    if not missing:
        return
    recipes, images = _recipes()
    with file.open("a") as table:
        for recipe, seed in missing:
            score = _accuracy(recipes[recipe].with_values({"loop.seed": seed}), images)
            table.write(json.dumps({"recipe": recipe, "seed": seed, "val_accuracy": score}) + "\n")
            table.flush()


def _recipes() -> tuple[list[Recipe], DataSet]:
    """Return recipes around the documents' rules, as the table of recipes draws them, and their images."""
    lines = [json.loads(line) for line in TABLE.read_text().splitlines()]
    drawn = [line["values"] for line in lines if line["half"] == "rules"][:RECIPES]
    shorter = {"loop.epochs": 8}
    return [Recipe().with_values({**BASE, **values, **shorter}) for values in drawn], load(Recipe().data)


def _accuracy(recipe: Recipe, images: DataSet) -> float:
    run = make_run(recipe, data=images)
    try:
        while not run.finished:
            result = run.step()
    finally:
        run.close()
    return result.val_accuracy


def replayed(table: Scores, replays: int, seed: int = 0) -> dict[str, float]:
    """Return how the finalists of replayed searches do on a table, [recipes, seeds]: see `summary`."""
    random, rows = np.random.default_rng(seed), []
    for _ in range(replays):
        recipes = random.permutation(len(table))[:TRIALS]
        seeds = random.permutation(table.shape[1])
        searched, fresh, rest = table[np.ix_(recipes, seeds)].T[[0]][0], seeds[1 : 1 + RUNS_EACH], seeds[4:]
        chosen = recipes[np.argsort(-searched, kind="stable")[:TOP]]
        values, half_width = estimated(table[np.ix_(chosen, fresh)])
        winner = int(np.argmax(values))
        truth = table[chosen[winner], rest]
        rows.append((table[chosen[winner], seeds[0]], values[winner], half_width, truth.mean()))
    return summary(np.array(rows))


def summary(rows: Scores) -> dict[str, float]:
    """Return in how many searches the interval has the truth, and by how much figures are above it.

    A row holds a search's own figure, the estimate, the interval's half width and the truth, which is itself
    a mean of several runs: that makes the share a little too low.
    """
    figure, value, half_width, truth = rows.T
    return {
        "n": len(rows),
        "held": float((np.abs(value - truth) <= half_width).mean()),
        "figure_above": float((figure - truth).mean()),
        "estimate_above": float((value - truth).mean()),
        "half_width": float(np.median(half_width)),
    }


# --- real searches ------------------------------------------------------------------------------------


def run(data: str, splits: str, seed: int) -> dict[str, Any]:
    """Run one search to its end, train its winner with more seeds, and return what came out."""
    with tempfile.TemporaryDirectory() as storage:
        final = f"finalists={{top: {TOP}, seeds: {RUNS_EACH}, splits: {splits}}}"
        flags = ["--trials", str(TRIALS), "--set", final, "--set", f"seed={seed}", "--set", "concurrent=1"]
        command = ["search", *DATA[data], *flags]
        where = environment(1)
        subprocess.run(
            [sys.executable, "-m", "search", *command, "--name", "run", "--storage", storage],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        search = Search(Path(storage) / "run")
        finals = search.progress.finals
        assert finals is not None
        assert finals.winner is not None
        assert finals.winner.estimate is not None
        recipe = search.progress.trial(finals.winner.trial).whole_recipe
        more = [_scores(recipe, splits, RUNS_EACH + k) for k in range(1, MORE + 1)]
    estimate = finals.winner.estimate
    interval = estimate.interval or Interval(estimate.value, estimate.value)  # agreeing seeds count as a miss
    record = {
        "data": data,
        "splits": splits,
        "seed": seed,
        "figure": finals.winner.score,
        "best_of_search": max(each.score for each in finals.finalists),
        "scores": [list(each.estimate.scores) for each in finals.finalists if each.estimate is not None],
        "estimate": estimate.value,
        "low": interval.low,
        "high": interval.high,
        "more": [validation for validation, _ in more],
        "test": [test for _, test in more],
        "command": portable(shlex.join(["tunebook", *command])),
        "environment": where,
    }
    print(data, splits, seed, record["figure"], estimate.value, record["more"], flush=True)
    return record


def _scores(recipe: Recipe, splits: str, k: int) -> tuple[float, float]:
    """Return the validation and test accuracy of a recipe with its k-th seed, and k-th split if fresh."""
    split = {"data.validation_seed": k} if splits == "fresh" else {}
    run = make_run(recipe.with_values({"loop.seed": recipe.loop.seed + k, **split}))
    try:
        while not run.finished:
            result = run.step()
        return result.val_accuracy, run.score("test").accuracy
    finally:
        run.close()


# --- the page -----------------------------------------------------------------------------------------


def _report() -> None:
    tables = {data: replayed(_scores_of(data), REPLAYS) for data in TABLED}
    runs = [json.loads(file.read_text()) for file in sorted(RUNS.glob("*.json"))]
    record = {"environment": environment(1), "tables": tables, "searches": summaries(runs)}
    write("finalists", record, page(tables, runs))


def _scores_of(data: str) -> Scores:
    table = np.full((RECIPES, SEEDS), np.nan)
    for line in map(json.loads, _table_file(data).read_text().splitlines()):
        table[line["recipe"], line["seed"]] = line["val_accuracy"]
    return table


def summaries(runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the summary of real searches, by data set and kind of split."""
    found = {}
    for data, splits in SEARCHES:
        mine = [each for each in runs if (each["data"], each["splits"]) == (data, splits)]
        if not mine:
            continue
        rows = [
            (each["figure"], each["estimate"], (each["high"] - each["low"]) / 2, np.mean(each["more"]))
            for each in mine
        ]
        held = [each["low"] <= np.mean(each["more"]) <= each["high"] for each in mine]
        test = [each["estimate"] - np.mean(each["test"]) for each in mine]
        best = [each["best_of_search"] - np.mean(each["test"]) for each in mine]
        more = {"held": float(np.mean(held)), "above_test": float(np.mean(test))}
        found[f"{data}, {splits} splits"] = {
            **summary(np.array(rows)),
            **more,
            "best_figure_above_test": float(np.mean(best)),
        }
    return found


def page(tables: dict[str, dict[str, float]], runs: Sequence[dict[str, Any]]) -> str:
    head = (
        "# Finalists: does the number hold?\n\n"
        f"Searches of {TRIALS} trials whose best {TOP} are trained again with {RUNS_EACH} fresh seeds. "
        "`held`: the share of searches in which the winner's 95 % interval has its mean over other seeds "
        f"({SEEDS - 4} on tables, {MORE} in real searches, so that it is itself a mean of few). "
        "`figure above`: by how many points the search's own figure is above that mean; `estimate above`: "
        "the same for the estimate; `half width`: the median of the interval's; `above test`: by how many "
        "points the estimate, and in brackets the best figure of the search, is above the mean test accuracy "
        "of the winner's other seeds.\n\n"
        "| searches | n | held | figure above | estimate above | half width | above test |\n"
        "|-|-|-|-|-|-|-|\n"
    )
    named = {f"table of {data}": each for data, each in tables.items()} | summaries(runs)
    rows = "\n".join(_row(name, each) for name, each in named.items())
    commands = "\n".join(f"    {each['command']}" for each in runs if each["seed"] == 0)
    where = "\n\n".join(described(each["environment"]) for each in _last_of_each(runs))
    return f"{head}{rows}\n\n{commands}\n\n{where}"


def _last_of_each(runs: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    return {each["data"]: each for each in runs}.values()


def _row(name: str, found: dict[str, float]) -> str:
    points = [f"{100 * found[each]:+.2f}" for each in ("figure_above", "estimate_above")]
    test = (
        f"{100 * found['above_test']:+.2f} ({100 * found['best_figure_above_test']:+.2f})"
        if "above_test" in found
        else ""
    )
    cells = (name, f"{found['n']:.0f}", f"{found['held']:.2f}", *points)
    return f"| {' | '.join(cells)} | {100 * found['half_width']:.2f} | {test} |"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=list(DATA))
    parser.add_argument("--report", action="store_true", help="only write the page again")
    parser.add_argument(
        "--part", type=int, default=0, help="of --parts processes, each with its own searches"
    )
    parser.add_argument("--parts", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
