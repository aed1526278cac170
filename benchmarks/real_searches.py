"""Compares real searches from the documents' priors with searches that know nothing, by epochs to a score.

    TUNEBOOK_DATA=FOLDER python benchmarks/real_searches.py [--only fashion-mnist] [--seeds 3]

Every arm is one command of the command line with 48 trials, run once for each seed; seeds take turns. A run
leaves one file under results/real-searches, so what was cut short goes on where it stopped. The figure is the
share of a baseline's epochs after which `document` with prior-tpe had a finished trial as good as the
baseline's best; epochs do not depend on how busy the machine is.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from report import RESULTS, described, environment, portable, write
from search.record.journal import EndEvent, EpochEvent, Event, TrialEvent, read

IMAGES = Path(os.environ.get("TUNEBOOK_DATA", "."))
RUNS = RESULTS / "real-searches"
TRIALS = 48
CHEAP = ("--set", "base.model={kind: resnet_small, depth: 8, width: 8, stem_stride: 2}")
DATA = {
    "fashion-mnist": [
        *("--data", str(IMAGES / "fashion-mnist"), "--set", "data.train_limit=10000"),
        *("--epochs", "9"),
    ],
    "sign-language": [
        *("--data", str(IMAGES / "sign-language-digits" / "Dataset")),
        *("--set", "data.image_size=32", "--epochs", "20"),
    ],
}
VALIDATION_IMAGES = {"fashion-mnist": 9_000, "sign-language": 310}
OURS = "document, prior-tpe"
ARMS = {
    OURS: ("--set", "space.name=document", "--set", "sampler.kind=prior-tpe"),
    "wide, tpe": ("--set", "space.name=wide", "--set", "sampler.kind=tpe"),
    "wide, random": ("--set", "space.name=wide", "--set", "sampler.kind=random"),
}
ARMS_OF = {"fashion-mnist": list(ARMS), "sign-language": [OURS, "wide, tpe"]}


def main() -> None:
    options = _options()
    RUNS.mkdir(parents=True, exist_ok=True)
    for seed in range(options.seeds):
        for data in [options.only] if options.only else list(DATA):
            for arm in [options.arm] if options.arm else ARMS_OF[data]:
                file = RUNS / f"{data}-{arm.replace(', ', '-')}-{seed}.json"
                if not options.report and not file.exists():
                    file.write_text(json.dumps(run(data, arm, seed)) + "\n")
    found = [json.loads(file.read_text()) for file in sorted(RUNS.glob("*.json"))]
    write("real-searches", {"environment": environment(1), "runs": found}, page(found))


def run(data: str, arm: str, seed: int) -> dict[str, Any]:
    """Runs one search to its end; returns its course, its best trial, and that recipe's test score."""
    with tempfile.TemporaryDirectory() as storage:
        flags = ["--storage", storage, "--name", "run", "--trials", str(TRIALS), "--set", f"seed={seed}"]
        command = ["search", *DATA[data], *CHEAP, *ARMS[arm], *flags]
        where = environment(1)
        _tunebook(*command)
        folder = Path(storage) / "run"
        events = read(folder / "events.jsonl")
        scored = json.loads(
            _tunebook("train", str(folder / "best.yaml"), "--test", "--json").splitlines()[-1]
        )
    shown = [each for each in command if each not in (storage, "--storage")]
    record = {
        "data": data,
        "arm": arm,
        "seed": seed,
        "test": scored["test_accuracy"],
        **course(events),
        "command": portable(" ".join(["tunebook", *shown])),
        "environment": where,
    }
    print(data, arm, seed, record["epochs"], record["best"], record["test"], flush=True)
    return record


def course(events: Sequence[Event]) -> dict[str, Any]:
    """Returns the epochs spent at each better final score, in order of time; the best trial, its score and
    values; all ends."""
    epochs, best, trial = 0, 0.0, 0
    steps: list[tuple[int, float]] = []
    ends: dict[str, int] = {}
    latest: dict[int, float] = {}
    drawn: dict[int, dict[str, Any]] = {}
    values: dict[str, Any] = {}
    for event in events:
        match event:
            case TrialEvent():
                drawn[event.trial] = event.values
            case EpochEvent():
                epochs += 1
                latest[event.trial] = event.result.val_accuracy
            case EndEvent():
                ends[event.state] = ends.get(event.state, 0) + 1
                if event.state == "finished" and latest[event.trial] > best:
                    best, trial, values = latest[event.trial], event.trial, drawn[event.trial]
                    steps.append((epochs, best))
    found = {"epochs": epochs, "best": best, "trial": trial, "values": values}
    return {**found, "course": steps, "ends": ends}


def epochs_to(found: dict[str, Any], score: float) -> int | None:
    """Returns after how many epochs a search had a finished trial as good; None where it never had one."""
    return next((epochs for epochs, best in found["course"] if best >= score), None)


def page(found: Sequence[dict[str, Any]]) -> str:
    head = (
        "# Real searches: the documents' priors against a wide space\n\n"
        f"{TRIALS} trials each, ResNet-8 of width 8 with stride 2, ASHA as each study's own rule sets it. "
        "`ratio`: the share of that arm's epochs after which `document` with prior-tpe, same data and seed, "
        "had a finished trial as good as that arm's best; `never` where it had none. `in error`: the same "
        "for that best less its standard error, which the number of validation images sets: the best of many "
        "trials is lucky, too.\n\n"
        "Some of the rules' own numbers (rates and averages in short runs, near shifts) were measured on "
        "these very images with this net, so that this is no independent check of them.\n\n"
        "| data | arm | seed | epochs | best | test, exported | finished, stopped, diverged, failed "
        "| ratio | in error |\n|-|-|-|-|-|-|-|-|-|\n"
    )
    commands = "\n".join(f"    {each['command']}" for each in found if each["seed"] == 0)
    return f"{head}{chr(10).join(_rows(found))}\n\n{_summary(found)}\n\n{commands}\n\n" + "\n".join(
        described(each["environment"]) for each in found[-1:]
    )


def _rows(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    for each in found:
        ends = ", ".join(
            str(each["ends"].get(state, 0)) for state in ("finished", "stopped", "diverged", "failed")
        )
        yield (
            f"| {each['data']} | {each['arm']} | {each['seed']} | {each['epochs']} | {each['best']:.4f} | "
            f"{each['test']:.4f} | {ends} | {_ratio_cell(each, found, 0.0)} | "
            f"{_ratio_cell(each, found, standard_error(each))} |"
        )


def _summary(found: Sequence[dict[str, Any]]) -> str:
    """Returns a line for each data set and baseline: the median of the seeds' ratios, and all of them."""
    lines = []
    for data, arms in ARMS_OF.items():
        for arm in arms[1:]:
            runs = [each for each in found if (each["data"], each["arm"]) == (data, arm)]
            for name, errors in (("as good as its best", 0.0), ("within a standard error of it", 1.0)):
                ratios = sorted(
                    ratio(each, found, errors * standard_error(each)) for each in runs if _ours(each, found)
                )
                if ratios:
                    every = ", ".join(map(_ratio_text, ratios))
                    median = _ratio_text(statistics.median_high(ratios))
                    lines.append(f"- {data} against {arm}, {name}: median {median} ({every})")
    return "\n".join(lines)


def standard_error(run: dict[str, Any]) -> float:
    """Returns the standard error of a run's best accuracy, from the number of its validation images."""
    best: float = run["best"]
    return math.sqrt(best * (1.0 - best) / VALIDATION_IMAGES[run["data"]])


def ratio(baseline: dict[str, Any], found: Sequence[dict[str, Any]], less: float = 0.0) -> float:
    """Returns our epochs to the baseline's best less so much, over its epochs; infinite if never reached."""
    reached = epochs_to(_ours(baseline, found)[0], baseline["best"] - less)
    return math.inf if reached is None else reached / baseline["epochs"]


def _ours(baseline: dict[str, Any], found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns our run of the same data and seed; empty where it has not been made."""
    wanted = (baseline["data"], OURS, baseline["seed"])
    return [each for each in found if (each["data"], each["arm"], each["seed"]) == wanted]


def _ratio_text(ratio: float) -> str:
    return f"{ratio:.2f}" if math.isfinite(ratio) else "never"


def _ratio_cell(each: dict[str, Any], found: Sequence[dict[str, Any]], less: float) -> str:
    if each["arm"] == OURS:
        return ""
    return _ratio_text(ratio(each, found, less)) if _ours(each, found) else "not run"


def _tunebook(*arguments: str) -> str:
    command = [sys.executable, "-m", "search", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Run searches with and without priors, and write the page that compares them."
    )
    parser.add_argument("--only", choices=DATA)
    parser.add_argument("--arm", choices=ARMS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--report", action="store_true", help="only write the page anew")
    return parser.parse_args()


if __name__ == "__main__":
    main()
