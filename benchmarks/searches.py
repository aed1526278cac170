"""Runs whole searches as a person starts them: how good they are, what pruning saves, how long they take.

    TUNEBOOK_DATA=FOLDER python benchmarks/searches.py [--only digits]

Each search is one command of the command line, run once for each seed in a process of its own; the wall time
is the command's, start-up, MLflow and export included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from report import described, environment, refuse_busy_machine, write

IMAGES = Path(os.environ.get("TUNEBOOK_DATA", "."))
SEARCHES = {
    "digits": ["--data", "digits"],
    "fashion-mnist": [
        *("--data", str(IMAGES / "fashion-mnist"), "--set", "data.train_limit=10000"),
        *("--trials", "12", "--epochs", "6"),
    ],
    "sign-language": ["--data", str(IMAGES / "sign-language-digits" / "Dataset")],
}


def main() -> None:
    options = _options()
    refuse_busy_machine(2)
    where = environment(threads=1)
    names = [options.only] if options.only else list(SEARCHES)
    found = {name: [_run(name, seed) for seed in range(options.seeds)] for name in names}
    write(options.name, {"environment": where, "searches": found}, _page(found, where))


def _run(name: str, seed: int) -> dict[str, Any]:
    """Run one search to its end; return its results and the exported recipe's score on the test part."""
    with tempfile.TemporaryDirectory() as storage:
        flags = ["--storage", storage, "--name", name, "--set", f"seed={seed}"]
        began = time.perf_counter()
        _tunebook("search", *SEARCHES[name], *flags)
        seconds = time.perf_counter() - began
        folder = Path(storage) / name
        summary = json.loads(_tunebook("show", str(folder), "--json"))
        test = json.loads(_tunebook("train", str(folder / "best.yaml"), "--test", "--json").splitlines()[-1])
    best = summary["best"]
    own = summary["trials"][0]
    record = {
        "seed": seed,
        "seconds": seconds,
        "trials": len(summary["trials"]),
        "best": best["metrics"]["val_accuracy"],
        "own": own["metrics"]["val_accuracy"],
        "test": test["test_accuracy"],
        "reproduced": test["val_loss"] == best["metrics"]["val_loss"],
        "epochs_trained": summary["epochs_trained"],
        "epochs_if_unpruned": summary["epochs_if_unpruned"],
        "saved": summary["saved"],
    }
    print(name, record, flush=True)
    return record


def _tunebook(*arguments: str) -> str:
    command = [sys.executable, "-m", "search", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _page(found: dict[str, list[dict[str, Any]]], where: dict[str, Any]) -> str:
    rows = [
        f"| {name} | {run['seed']} | {run['trials']} | {run['own']:.4f} | {run['best']:.4f} | "
        f"{run['test']:.4f} | {'yes' if run['reproduced'] else 'no'} | "
        f"{run['saved']:.0%} | {run['seconds']:.0f} |"
        for name, runs in found.items()
        for run in runs
    ]
    commands = "\n".join(
        f"    tunebook search {' '.join(SEARCHES[name])}".replace(str(IMAGES), "$TUNEBOOK_DATA")
        for name in found
    )
    return (
        "# Whole searches on two CPU cores\n\n"
        "`val_accuracy` of the documented recipe (trial 0) and of the best one; the exported recipe "
        "trained again, with its test accuracy, and whether its validation loss came out the same to the "
        "last bit.\n\n"
        "| search | seed | trials | own recipe | best | test, exported | same numbers | epochs saved | "
        "seconds |\n|-|-|-|-|-|-|-|-|-|\n" + "\n".join(rows) + f"\n\n{commands}\n\n{described(where)}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Run whole searches on small data sets, and write what they found."
    )
    parser.add_argument("--only", choices=SEARCHES)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--name", default="searches-cpu")
    return parser.parse_args()


if __name__ == "__main__":
    main()
