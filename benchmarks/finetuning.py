"""Shows what fine-tuning by default is worth: against scratch, against a wide space, and over backbones.

    TUNEBOOK_DATA=FOLDER python benchmarks/finetuning.py [--part start|spaces|backbones] [--seeds 3]
    python benchmarks/finetuning.py --data birds=PATH ...       # the same for images of yours

Three parts, each for three seeds (of the search, the split into batches and the initial weights):

- `start`: the documented recipe from EfficientNet-Lite0, untuned, against the documented recipe of the small
  ResNet from scratch, in as many epochs as take the same processor time, and against the loop that anybody
  writes: all layers, AdamW at 0.001, batch 32, one cycle, the weights' own normalisation. And what frozen
  BatchNorm is worth: the documented recipe without it, at the rate of that by rule, and with it at that rate.
- `spaces`: a search in `finetune` against one in `wide`, both from the same weights. The figure is the share
  of the wide one's epochs after which `finetune` had a finished trial as good as the wide one's best: of all
  its trials, and of those that were drawn, since its first one is the documented recipe too, which a person
  who knows no rule does not have. Nothing is stopped early, since the first trial would stop drawn ones.
- `backbones`: what `tunebook backbones` ranks first of EfficientNet-Lite0, 1 and 2, against the order after a
  short search with each.

A run leaves one file under results/finetuning, so what was cut short goes on where it stopped. Test scores
have 95 % intervals from a bootstrap over images.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from safetensors.torch import load_file
from torch.nn import functional

from finetuning_page import BACKBONES, PARTS, SEARCHED, SIDE, TRIALS, Record, page
from real_searches import course
from report import RESULTS, environment, portable, write
from search.facts.hardware import Hardware, Node
from search.record.home import Home
from search.record.journal import EndEvent, EpochEvent, Event, TrialEvent, read
from search.running.prepare import Prepared, prepare
from search.study import Study
from trainable.train import train
from tuning_sets import make_set, write_parts

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.lite_weights import LITE0, write_weights

NAME = "finetuning"
RUNS = RESULTS / NAME
TRAINED = 1_000
"""Sets of our own making have so many images to train on."""
EPOCHS = 3
MADE = {"photographs": PARTS, "nuclei": PARTS, "clothes": ("start",)}
"""The sets of our own making, and the parts that measure them."""
SCHEDULERS = {"spaces": "none", "backbones": "asha"}
TOLD = ("optimizer.kind", "optimizer.lr", "optimizer.weight_decay", "loop.batch_size", "model.freeze_norm")
NOT_FROZEN = {"base.model.freeze_norm": False}
MACHINE = Hardware((Node(cpus=1, gpus=0),))


@dataclass(frozen=True)
class Case:
    """Names a set, its images, the folder of weights and the seed."""

    name: str
    data: Path
    weights: Path
    seed: int

    @property
    def lite0(self) -> Path:
        return self.weights / f"{LITE0}.safetensors"


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    RUNS.mkdir(parents=True, exist_ok=True)
    weights = options.weights.absolute()
    for number in range(len(BACKBONES)):
        write_weights(weights, number)
    for part in [options.part] if options.part else PARTS:
        for seed in range(options.seeds):
            for name, path in _sets(options, part).items():
                for arm, measure in ARMS[part].items():
                    file = RUNS / f"{name}-{part}-{arm}-{seed}.json"
                    if not options.report and not file.exists():
                        where = environment(1)
                        found = measure(Case(name, path, weights, seed))
                        found |= {"set": name, "part": part, "arm": arm, "seed": seed, "environment": where}
                        file.write_text(json.dumps(found) + "\n")
                        print(name, part, arm, seed, found, flush=True)
    runs = [json.loads(file.read_text()) for file in sorted(RUNS.glob("*.json"))]
    write(NAME, {"environment": environment(1), "runs": runs}, page(runs))


# --- the start: one training each ---------------------------------------------------------------------


def pretrained(case: Case) -> Record:
    return _trained(_prepared(case, EPOCHS, case.lite0))


def scratch(case: Case) -> Record:
    """Train from scratch in the processor time that the same seed took from pretrained weights; two shorter
    runs say what an epoch takes, and what a run takes beside its epochs."""
    file = RUNS / f"{case.name}-start-pretrained-{case.seed}.json"
    seconds = json.loads(file.read_text())["cpu_seconds"]
    few, more = 2, 10
    short, long = (_trained(_prepared(case, each, None))["cpu_seconds"] for each in (few, more))
    an_epoch = (long - short) / (more - few)
    return _trained(_prepared(case, max(few, round(few + (seconds - short) / an_epoch)), None))


def norm_not_frozen(case: Case) -> Record:
    return _trained(_prepared(case, EPOCHS, case.lite0, NOT_FROZEN))


def frozen_at_same_rate(case: Case) -> Record:
    values = _prepared(case, EPOCHS, case.lite0, NOT_FROZEN).space.own
    pins = {f"base.{path}": values[path] for path in ("optimizer.kind", "optimizer.lr")}
    return _trained(_prepared(case, EPOCHS, case.lite0, {**pins, "base.model.freeze_norm": True}))


def loop(case: Case) -> Record:
    """Train the loop that anybody writes on the same images; its scores have no interval."""
    images = _prepared(case, EPOCHS, case.lite0).data
    train_images, labels = _array(images.train)
    torch.manual_seed(case.seed)
    network: Any = timm.create_model(LITE0)
    network.load_state_dict(load_file(case.lite0))
    network.reset_classifier(len(images.info.classes))
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3)
    steps = EPOCHS * (len(labels) // 32)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps)
    started = time.process_time()
    for _ in range(EPOCHS):
        network.train()
        for chosen in torch.randperm(len(labels))[: len(labels) // 32 * 32].split(32):
            loss = functional.cross_entropy(network(train_images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cycle.step()
    seconds = time.process_time() - started
    network.eval()
    scores = {}
    for name, part in (("validation", images.validation), ("test", images.test)):
        pixels, truth = _array(part)
        with torch.inference_mode():
            answers = torch.cat([network(each).argmax(1) for each in pixels.split(128)])
        scores[name] = (answers == truth).double().mean().item()
    return {**scores, "epochs": EPOCHS, "cpu_seconds": seconds}


def _array(part: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a part's images [N, 3, H, W] as EfficientNet-Lite's weights know them, and its labels."""
    pixels = torch.from_numpy(np.asarray(part.images)).float()
    colour = pixels.expand(-1, 3, -1, -1)
    return (colour - 127.5) / 127.5, torch.from_numpy(np.asarray(part.labels)).long()


def _prepared(
    case: Case, epochs: int, weights: Path | None, pins: Mapping[str, Any] | None = None
) -> Prepared:
    """Return a search of one trial, which has the documented recipe around pins, from weights or scratch."""
    written = {
        "data.image_size": SIDE,
        "budget.epochs": epochs,
        "budget.trials": 1,
        "base.model.weights": None if weights is None else str(weights),
        "base.loop.seed": case.seed,
        "resources.cpus": 1,
        **(pins or {}),
    }
    study = Study.from_tree({"data": {"path": str(case.data)}}).with_values(written).resolved("start")
    return prepare(study, Home.of(study), MACHINE)


def _trained(prepared: Prepared) -> Record:
    recipe = prepared.space.recipe(prepared.space.own)
    started = time.process_time()
    found = train(recipe, data=prepared.data, test=True)
    seconds = time.process_time() - started
    assert found.test is not None
    return {
        "model": recipe.get("model.name") if recipe.model.kind == "timm" else recipe.model.kind,
        "recipe": recipe.digest(),
        "values": {path: recipe.get(path) for path in TOLD},
        "epochs": recipe.loop.epochs,
        "validation": found.history[-1].val_accuracy,
        "by_epoch": [each.val_accuracy for each in found.history],
        "test": found.test.metrics("test")["test_accuracy"],
        "interval": found.intervals.bounds["accuracy"] if found.intervals is not None else None,
        "cpu_seconds": seconds,
    }


# --- searches -----------------------------------------------------------------------------------------


def _searching(space: str) -> Callable[[Case], Record]:
    def measure(case: Case) -> Record:
        return _searched(case, case.lite0, "spaces", space)

    return measure


def _searched(case: Case, weights: Path, part: str, space: str = "finetune") -> Record:
    """Run one search to its end; return its course, and the test score of its best recipe. In `wide` one
    trial more runs, and the course is that of the drawn ones; the best of all stands beside it."""
    wide = space == "wide"
    with tempfile.TemporaryDirectory() as storage:
        command = [
            *(
                "search",
                "--data",
                str(case.data),
                "--weights",
                str(weights),
                "--storage",
                storage,
                "--name",
                "run",
            ),
            *("--trials", str(TRIALS[part] + wide), "--epochs", str(SEARCHED["epochs"]), "--cpus", "1"),
            *("--set", f"seed={case.seed}", "--set", f"base.loop.seed={case.seed}"),
            *("--set", f"data.train_limit={SEARCHED['images']}"),
            *("--set", f"data.image_size={SIDE}", "--set", f"space.name={space}"),
            *("--set", f"scheduler.kind={SCHEDULERS[part]}"),
        ]
        _tunebook(*command)
        folder, best = Path(storage) / "run", Path(storage) / "best.yaml"
        events = read(folder / "events.jsonl")
        found = course(_drawn(events) if wide else events)
        _tunebook("export", str(folder), "--trial", str(found["trial"]), "--out", str(best))
        scored = json.loads(_tunebook("train", str(best), "--test", "--json").splitlines()[-1])
        return {
            **found,
            "best_of_all": course(events)["best"],
            "test": scored["test_accuracy"],
            "interval": scored["test_intervals"]["intervals"]["test_accuracy"],
            "command": portable(shlex.join(["tunebook", *command]).replace(storage, "searches")),
        }


def _drawn(events: Sequence[Event]) -> list[Event]:
    """Return the events without those of the documented recipe."""
    own = {each.trial for each in events if isinstance(each, TrialEvent) and each.own}
    return [
        each
        for each in events
        if not (isinstance(each, TrialEvent | EpochEvent | EndEvent) and each.trial in own)
    ]


def ranked(case: Case) -> Record:
    """Ranks the networks by frozen features, and by a short search with each."""
    flags = ("--set", f"data.image_size={SIDE}", "--set", f"data.train_limit={SEARCHED['images']}")
    with tempfile.TemporaryDirectory() as folder:
        for each in BACKBONES:
            (Path(folder) / f"{each}.safetensors").symlink_to(case.weights / f"{each}.safetensors")
        printed = _tunebook("backbones", str(case.data), "--weights", folder, "--json", *flags)
    tuned = {name: _searched(case, case.weights / f"{name}.safetensors", "backbones") for name in BACKBONES}
    return {
        "probed": {each["name"]: each["accuracy"] for each in json.loads(printed)["backbones"]},
        "tuned": {name: each["best"] for name, each in tuned.items()},
        "test": {name: (each["test"], each["interval"]) for name, each in tuned.items()},
    }


ARMS: dict[str, dict[str, Callable[[Case], Record]]] = {
    "start": {
        "pretrained": pretrained,
        "scratch": scratch,
        "loop": loop,
        "norm-not-frozen": norm_not_frozen,
        "frozen-at-same-rate": frozen_at_same_rate,
    },
    "spaces": {"finetune": _searching("finetune"), "wide": _searching("wide")},
    "backbones": {"ranked": ranked},
}


# --- sets and options ---------------------------------------------------------------------------------


def _sets(options: argparse.Namespace, part: str) -> dict[str, Path]:
    """Return the sets by name: those that are given, or photographs of signs and some of our own making."""
    if options.data:
        pairs = [each.partition("=") for each in options.data]
        return {name: Path(path) for name, _, path in pairs}
    folder = Path(os.environ["TUNEBOOK_DATA"])
    made = options.weights.absolute().parent / "finetuning-sets"
    return {
        "signs": folder / "sign-language-digits" / "Dataset",
        **{name: _made(name, folder, made) for name, parts in MADE.items() if part in parts},
    }


def _made(name: str, folder: Path, made: Path) -> Path:
    """Write a set of `tuning_sets` in three parts, once, and return its file."""
    file = made / f"{name}.npz"
    if not file.exists():
        made.mkdir(parents=True, exist_ok=True)
        write_parts(make_set(name, folder), file, train=TRAINED)
    return file


def _tunebook(*arguments: str) -> str:
    command = [sys.executable, "-m", "search", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", action="append", metavar="NAME=PATH", help="images of yours instead")
    parser.add_argument(
        "--weights", type=Path, default=Path("lite-weights"), help="where weights are written"
    )
    parser.add_argument("--report", action="store_true", help="only write the page anew")
    return parser.parse_args()


if __name__ == "__main__":
    main()
