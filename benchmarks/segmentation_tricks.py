"""Measures what each technique of the guides' table for segmentation gains, and some of the papers'
(000:42-51).

    python benchmarks/segmentation_tricks.py --nuclei $TUNEBOOK_DATA/nuclei --weights FILE [--seeds 3]
    [--epochs 60]

The base is an FPN over EfficientNet-Lite0 (segmentation_models_pytorch), from ImageNet's weights in FILE, in
windows of 128 pixels. Each arm changes one thing; what is done at test alone scores the base's own weights
again. Sets: the microscope images of nuclei (binary), and `shapes`, rendered by made_masks.py (five classes,
images of different sizes). Figures are mean IoU of the test part.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any, NamedTuple

import torch

from made_masks import write_set
from report import RESULTS, described, environment, write
from trainable.recipe import Recipe
from trainable.run import make_run
from trainable.tasks.kits import load_for
from trainable.training.devices import default_device

BASE: dict[str, Any] = {
    "model": {"kind": "smp", "name": "fpn", "encoder": "tf_efficientnet_lite0"},
    "optimizer": {"kind": "adamw", "lr": 1e-3, "scaling": "none", "weight_decay": 0.01},
    "augmentation": {"crop": {"kind": "scaled"}},
    "loop": {"batch_size": 8, "workers": 0},
    "data": {"image_size": 128, "flips": ["horizontal"], "in_memory": True},
    "schedule": {"kind": "poly", "power": 0.9},
}
WINDOWS = (64, 192)
ARMS: dict[str, dict[str, Any]] = {
    "base": {},
    "from scratch (000:48)": {"model.weights": None},
    **{f"windows of {side} instead of 128 (000:49)": {"data.image_size": side} for side in WINDOWS},
    "loss at the size of the outputs (000:50)": {"task.loss.resolution": "outputs"},
    "frozen BatchNorm (000:51)": {"model.freeze_norm": True},
    "the backbone at a tenth of the rate": {"model.layer_rates.kind": "backbone"},
    "cosine instead of poly": {"schedule.kind": "cosine"},
    "no random scales": {"augmentation.crop.kind": "none"},
    "with Dice": {"task.loss.dice": 1.0},
    "with Lovasz": {"task.loss.lovasz": 1.0},
    "CutMix": {"augmentation.mixing.kind": "cutmix", "augmentation.mixing.probability": 0.5},
    "ClassMix": {"augmentation.mixing.kind": "classmix", "augmentation.mixing.probability": 0.5},
}
AT_TEST: dict[str, dict[str, Any]] = {
    "flip at test (000:47)": {"evaluation.flip": True},
    "scales 0.75, 1, 1.25 at test (000:46)": {"evaluation.scales": [0.75, 1.0, 1.25]},
    "both": {"evaluation.flip": True, "evaluation.scales": [0.75, 1.0, 1.25]},
    "windows that do not overlap": {"task.overlap": 0.0},
}
RATES = (1e-3, 3e-3, 1e-2)
SAID = {
    "from scratch (000:48)": "-3",
    f"windows of {WINDOWS[1]} instead of 128 (000:49)": "+10, from 321 to 513 px",
    "loss at the size of the outputs (000:50)": "-1.3",
    "frozen BatchNorm (000:51)": "+1.3",
    "flip at test (000:47)": "+0.4",
    "scales 0.75, 1, 1.25 at test (000:46)": "+1",
}
"""What the guides say that each gains, in per cent, as the difference to a base that is as ours."""


class Job(NamedTuple):
    """Describes one training: its set, its arm, its recipe and its seed."""

    name: str
    arm: str
    recipe: Recipe
    seed: int


class Done(NamedTuple):
    """Holds what a training scored on validation and test, by arm: its own, and those of what is done at
    test."""

    name: str
    arm: str
    seed: int
    validation: float
    test: dict[str, float]
    seconds: float


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        shapes = write_set("shapes", Path(folder) / "shapes", options.images)
        recipes = {"nuclei": _nuclei(options), "shapes": _shapes(shapes, options)}
        tree = _begun(options)
        with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
            rates = tree["rates"] = tree["rates"] or _best_rates(recipes, pool)
            print(rates, flush=True)
            known = {(each["name"], each["arm"], each["seed"]) for each in tree["runs"]}
            jobs = [
                Job(name, arm, _arm(recipe, arm, rates[name]), seed)
                for name, recipe in recipes.items()
                for arm in ARMS
                for seed in range(options.seeds)
                if (name, arm, seed) not in known
            ]
            for done in pool.imap_unordered(_trained, jobs):
                tree["runs"].append({**done._asdict(), "commit": tree["environment"]["commit"]})
                write(options.name, tree, page(tree, options))


def _begun(options: argparse.Namespace) -> dict[str, Any]:
    """Return what an earlier call has measured, which is not measured again."""
    file = RESULTS / f"{options.name}.json"
    earlier = json.loads(file.read_text()) if file.exists() else {"rates": {}, "runs": []}
    return {**earlier, "environment": environment(1)}


def page(tree: dict[str, Any], options: argparse.Namespace) -> str:
    head = (
        "# What the techniques of segmentation gain\n\n"
        f"FPN over EfficientNet-Lite0 from ImageNet's weights, windows of 128 px, {options.epochs} epochs, "
        "batches of 8, AdamW. Mean IoU of the test part in points: mean ± standard deviation over "
        f"{options.seeds} seeds (of weights, order and augmentation). `gain`: the mean difference to `base` "
        "with the same seed, ± its standard error. The rate is the best of three on the validation part, for "
        f"weights and for training from scratch ({_rates(tree['rates'])}). Nuclei: 42 training and 9 test "
        f"images of 256 px. Shapes: {options.images} images of 96 to 160 px, 70 % of them to train on. "
        "`guides`: what they say. A cell of fewer seeds says how many.\n\n"
        "| | guides | nuclei | gain | shapes | gain |\n|-|-|-|-|-|-|\n"
    )
    rows = [
        f"| {arm} | {SAID.get(arm, '')} | "
        + " | ".join(_cells(tree["runs"], name, arm, options.seeds) for name in ("nuclei", "shapes"))
        + " |"
        for arm in (*ARMS, *AT_TEST)
    ]
    commits = sorted({(each["name"], each["commit"]) for each in tree["runs"]})
    runs = ", ".join(f"{name} {commit}" for name, commit in commits)
    return head + "\n".join(rows) + f"\n\nCommits of the runs: {runs}.\n\n" + described(tree["environment"])


def _cells(runs: Sequence[dict[str, Any]], name: str, arm: str, seeds: int) -> str:
    """Return the score of an arm, and its gain over the base; with so few seeds as there are."""
    ours, base = (
        {
            each["seed"]: 100 * each["test"][which]
            for each in runs
            if each["name"] == name and which in each["test"]
        }
        for which in (arm, "base")
    )
    gains = [ours[seed] - base[seed] for seed in ours if seed in base]
    if not ours or not gains:
        return "not measured | "
    gain = (
        ""
        if arm == "base"
        else f"{statistics.fmean(gains):+.1f} ± {_deviation(gains) / len(gains) ** 0.5:.1f}"
    )
    few = f" (n={len(ours)})" if len(ours) < seeds else ""
    return f"{statistics.fmean(ours.values()):.1f} ± {_deviation(list(ours.values())):.1f}{few} | {gain}"


def _rates(rates: dict[str, dict[str, float]]) -> str:
    return "; ".join(
        f"{name}: {found['weights']:g} and {found['scratch']:g}" for name, found in rates.items()
    )


def _deviation(numbers: Sequence[float]) -> float:
    return statistics.stdev(numbers) if len(numbers) > 1 else 0.0


def _best_rates(recipes: dict[str, Recipe], pool: Pool) -> dict[str, dict[str, float]]:
    """Return the rate with the best score on validation, from weights and from scratch, by another seed."""
    starts: dict[str, dict[str, Any]] = {"weights": {}, "scratch": {"model.weights": None}}
    keys = [(name, start, rate) for name in recipes for start in starts for rate in RATES]
    jobs = [
        Job(name, "base", recipes[name].with_values({**starts[start], "optimizer.lr": rate}), 1000)
        for name, start, rate in keys
    ]
    found = pool.map(_trained, jobs, chunksize=1)
    scores = {key: each.validation for key, each in zip(keys, found, strict=True)}
    return {
        name: {start: max(RATES, key=lambda rate: scores[name, start, rate]) for start in starts}
        for name in recipes
    }


def _arm(recipe: Recipe, arm: str, rates: dict[str, float]) -> Recipe:
    start = "scratch" if "model.weights" in ARMS[arm] else "weights"
    return recipe.with_values({"optimizer.lr": rates[start], **ARMS[arm]})


def _trained(job: Job) -> Done:
    torch.set_num_threads(1)
    began = time.perf_counter()
    recipe = job.recipe.with_values({"loop.seed": job.seed})
    data = load_for(recipe, default_device())
    run = make_run(recipe, data=data)
    while not run.finished:
        run.step()
    test = {job.arm: run.score("test").extra["mean_iou"]}
    if job.arm == "base":
        for arm, values in AT_TEST.items():
            again = make_run(recipe.with_values(values), data=data)
            again.model.load_state_dict(run.weights())
            test[arm] = again.score("test").extra["mean_iou"]
            again.close()
    validation = run.score("validation").extra["mean_iou"]
    run.close()
    done = Done(job.name, job.arm, job.seed, validation, test, time.perf_counter() - began)
    print(
        job.name,
        job.arm,
        job.seed,
        round(validation, 4),
        round(test[job.arm], 4),
        round(done.seconds),
        flush=True,
    )
    return done


def _nuclei(options: argparse.Namespace) -> Recipe:
    return _recipe(str(options.nuclei), {"values": "binary"}, options)


def _shapes(folder: Path, options: argparse.Namespace) -> Recipe:
    return _recipe(str(folder), {"classes": str(folder / "classes.txt")}, options)


def _recipe(path: str, masks: dict[str, Any], options: argparse.Namespace) -> Recipe:
    tree = {**BASE, "task": {"kind": "segmentation", "masks": masks}}
    values = {
        "data.path": path,
        "loop.epochs": options.epochs,
        "model.weights": options.weights,
        "precision.kind": "auto" if torch.cuda.is_available() else "fp32",
    }
    return Recipe.from_tree(tree).with_values(values)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the gains of segmentation's techniques.")
    parser.add_argument("--nuclei", type=Path, required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--images", type=int, default=160)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--name", default="segmentation-tricks")
    return parser.parse_args()


if __name__ == "__main__":
    main()
