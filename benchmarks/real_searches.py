"""Compares real searches by the default sampler with the other samplers, in the space `document` and in
`wide`.

    TUNEBOOK_DATA=FOLDER python benchmarks/real_searches.py [--only fashion-mnist] [--seeds 3]
    ... --at-once 12 --gpus 0.5        # so many searches share a GPU, two trials of each

Every arm is one command of the command line with 48 trials, run once for each seed; seeds take turns. Its
best trial is then trained from its exported YAML with fresh seeds, and scored on the test part. With the
default sampler so are the trial that was the best when half of the epochs were spent, and trial 0. A run
leaves one file under results/real-searches, so what was cut short goes on where it stopped. Epochs do not
depend on how busy the machine is.

Some of the rules' numbers were measured on the first two sets, and one on 5,000 of the `photographs`, which
are CIFAR-10's. Of those for training from scratch, the shares of the optimizers and Muon's rate alone were
chosen on all four; `nuclei` are squares of microscope images, by how many nuclei are in them."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from real_searches_page import ARMS, ARMS_OF, DATA, DEFAULT, Record, halfway, page
from report import RESULTS, environment, portable, write
from search.record.journal import EndEvent, EpochEvent, Event, TrialEvent, read
from search.record.verification import read_verification
from tuning_sets import TuningSet, make_set, photographs, write_parts

IMAGES = Path(os.environ.get("TUNEBOOK_DATA", ".")).absolute()
RUNS = RESULTS / "real-searches"
TRIALS, FRESH = 48, 3
CHEAP = (
    *("--set", "base.model={kind: resnet_small, depth: 8, width: 8, stem_stride: 2}"),
    *("--set", "base.precision.kind=fp32"),  # no search's depends on how busy its start was
)
FLAGS = {
    "fashion-mnist": [
        *("--data", str(IMAGES / "fashion-mnist"), "--set", "data.train_limit=10000"),
        *("--epochs", "9"),
    ],
    "sign-language": [
        *("--data", str(IMAGES / "sign-language-digits" / "Dataset")),
        *("--set", "data.image_size=32", "--epochs", "20"),
    ],
    "photographs": ["--data", "photographs.npz", "--epochs", "9"],
    "nuclei": ["--data", "nuclei.npz", "--set", "data.image_size=32", "--epochs", "20"],
}
TRAIN, OTHERS = 10_000, 9_000
"""Of the photographs; a third of the others validates."""


def main() -> None:
    options = _options()
    RUNS.mkdir(parents=True, exist_ok=True)
    asked = [
        (data, arm, seed)
        for seed in range(options.seeds)
        for data in options.only
        for arm in ([options.arm] if options.arm else ARMS_OF[data])
    ]
    if not options.report:
        with ThreadPoolExecutor(options.at_once) as threads:
            list(threads.map(partial(_run_missing, options.gpus), *zip(*asked, strict=True)))
    found = [json.loads(file.read_text()) for file in sorted(RUNS.glob("*.json"))]
    write("real-searches", {"environment": environment(1), "runs": found}, page(found))


def _run_missing(gpus: float | None, data: str, arm: str, seed: int) -> None:
    file = RUNS / f"{data}-{arm.replace(', ', '-')}-{seed}.json"
    if not file.exists():
        file.write_text(json.dumps(run(data, arm, seed, gpus)) + "\n")


def run(data: str, arm: str, seed: int, gpus: float | None = None) -> Record:
    """Run one search to its end, each trial on such a share of a GPU; return its course, and what its best
    trial scores with fresh seeds."""
    space, sampler = ARMS[arm]
    with tempfile.TemporaryDirectory() as storage:
        make_set_of(data, Path(storage))
        flags = ["--storage", storage, "--name", "run", "--trials", str(TRIALS), "--set", f"seed={seed}"]
        chosen = ["--set", f"space.name={space}", "--set", f"sampler.kind={sampler}"]
        if gpus is not None:
            chosen += ["--set", f"resources={{cpus: 1, gpus: {gpus:g}}}"]
        command = ["search", *FLAGS[data], *CHEAP, *chosen, "--set", "finalists=none", *flags]
        where = environment(1)
        tunebook(Path(storage), *command)
        folder = Path(storage) / "run"
        found = course(read(folder / "events.jsonl"))
        trials = {"best": found["trial"]}
        if sampler == DEFAULT:
            trials["documented"] = 0
            if (before := halfway(found)) is not None:
                trials["halfway"] = before[1]
        again = {trial: fresh(folder, trial) for trial in sorted(set(trials.values()))}
    shown = [each for each in command if each not in (storage, "--storage")]
    record = {
        "data": data,
        "arm": arm,
        "seed": seed,
        "fresh": {which: again[trial] for which, trial in trials.items()},
        **found,
        "command": portable(shlex.join(["tunebook", *shown])),
        "environment": where,
    }
    print(data, arm, seed, record["epochs"], record["best"], record["fresh"], flush=True)
    return record


def course(events: Sequence[Event], metric: str = "val_accuracy") -> dict[str, Any]:
    """Return the epochs spent at each better final score, the score and its trial, in order of time; the
    best trial, its score and values; all ends."""
    epochs, best, trial = 0, 0.0, 0
    steps: list[tuple[int, float, int]] = []
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
                latest[event.trial] = event.result.metrics()[metric]
            case EndEvent():
                ends[event.state] = ends.get(event.state, 0) + 1
                if event.state == "finished" and latest[event.trial] > best:
                    best, trial, values = latest[event.trial], event.trial, drawn[event.trial]
                    steps.append((epochs, best, trial))
    found = {"epochs": epochs, "best": best, "trial": trial, "values": values}
    return {**found, "course": steps, "ends": ends}


def make_set_of(data: str, folder: Path) -> None:
    """Write a set that no folder holds."""
    if data == "photographs":
        images, labels = photographs(IMAGES, TRAIN + OTHERS, side=32)
        made = TuningSet(images[:TRAIN], labels[:TRAIN], images[TRAIN:], labels[TRAIN:])
    elif data == "nuclei":
        made = make_set(data, IMAGES)
    else:
        return
    write_parts(made, folder / f"{data}.npz", train=len(made.train))


def fresh(folder: Path, trial: int, seeds: int = FRESH) -> dict[str, Sequence[float]]:
    """Return the scores of a trial's recipe, trained from its YAML with fresh seeds."""
    kept = ["--trial", str(trial), "--verify", str(seeds), "--out", str(folder / f"{trial}.yaml")]
    tunebook(folder.parent, "export", str(folder), *kept, fails=True)
    verified = read_verification(folder)
    assert verified is not None
    assert verified.trial == trial
    return {"test": verified.found.scores, "validation": verified.found.validation_scores}


def tunebook(folder: Path, *arguments: str, fails: bool = False) -> None:
    """Run a command there. With `fails` it may exit with 1, as `--verify` does where the figure does not
    hold."""
    command = [sys.executable, "-m", "search", *arguments]
    code = subprocess.run(command, stdout=subprocess.DEVNULL, cwd=folder).returncode
    if code != 0 and not (fails and code == 1):
        raise subprocess.CalledProcessError(code, command)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Run searches with several samplers in two spaces, and write the page that compares them."
    )
    parser.add_argument("--only", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--arm", choices=ARMS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=1, help="so many searches")
    parser.add_argument("--gpus", type=float, help="a trial's share of a GPU; the searches must fit on it")
    parser.add_argument("--report", action="store_true", help="only write the page anew")
    return parser.parse_args()


if __name__ == "__main__":
    main()
