"""Writes a table of real learning curves: 256 recipes on 4,000 Fashion-MNIST images, to be replayed often.

    python benchmarks/recipe_table.py --data FASHION_MNIST

Half of the recipes are drawn wide, evenly over the box that the table spans; half around the documents' rules
for these data, so that the table is dense where a good search spends its time. Each line of the table holds a
recipe's values by dotted path, which half it is from, and after each of 9 epochs the validation accuracy and
loss of ResNet-8 (width 8, stride 2) on 2,000 images. A run that is cut short goes on after the lines written.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from early_scores import images_of
from report import refuse_busy_machine
from trainable.data import DataSet
from trainable.recipe import Recipe
from trainable.run import make_run

TABLE = Path(__file__).parent / "tables" / "fashion_mnist_4000.jsonl"
EPOCHS = 9
BASE: dict[str, Any] = {
    "model.width": 8,
    "model.stem_stride": 2,
    "loop.batch_size": 64,
    "loop.epochs": EPOCHS,
    "augmentation.flip_probability": 0.0,
    "precision.kind": "fp32",
}
SCHEDULES = ("cosine", "poly", "onecycle", "constant")
CROPS = ("none", "pad")


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    refuse_busy_machine(2)
    data = images_of(options.data)
    TABLE.parent.mkdir(exist_ok=True)
    done = len(TABLE.read_text().splitlines()) if TABLE.exists() else 0
    with TABLE.open("a") as table:
        for number in range(done, options.recipes):
            random = np.random.default_rng((options.seed, number))
            half = ("wide", "rules")[number % 2]
            values = wide(random) if half == "wide" else around_the_rules(random)
            began = time.process_time()
            line: dict[str, Any] = {"half": half, "values": values, "curve": curve(values, data)}
            line["cpu_seconds"] = round(time.process_time() - began, 2)
            table.write(json.dumps(line) + "\n")
            table.flush()


def wide(random: np.random.Generator) -> dict[str, Any]:
    """Draw a point of the table's box: what a person writes who knows nothing of the rules."""
    sgd = bool(random.random() < 0.5)
    return _complete(
        kind="sgd" if sgd else "adamw",
        lr=10 ** random.uniform(*((-4, 1) if sgd else (-5, 0))),
        decay=10 ** random.uniform(*((-6, -2) if sgd else (-5, 0))),
        momentum=random.uniform(0.5, 0.99),
        schedule=str(random.choice(SCHEDULES)),
        warmup=random.uniform(0.0, 3.0),
        smoothing=random.uniform(0.0, 0.3),
        crop=str(random.choice(CROPS)),
    )


def around_the_rules(random: np.random.Generator) -> dict[str, Any]:
    """Draw around what the documents say for 4,000 images, 9 epochs and 20,000 parameters."""
    sgd = bool(random.random() < 0.7)
    return _complete(
        kind="sgd" if sgd else "adamw",
        lr=10 ** random.normal(*((-0.3, 0.4) if sgd else (-2.3, 0.5))),
        decay=10 ** random.normal(*((-3.9, 0.5) if sgd else (-1.7, 0.5))),
        momentum=random.normal(0.9, 0.03),
        schedule=str(random.choice(SCHEDULES, p=(0.6, 0.1, 0.2, 0.1))),
        warmup=random.uniform(0.0, 0.9),
        smoothing=float(random.choice((0.0, 0.1), p=(0.75, 0.25))),
        crop=str(random.choice(CROPS, p=(0.8, 0.2))),
    )


def curve(values: dict[str, Any], data: DataSet) -> list[list[float]]:
    """Return validation accuracy and loss after each epoch; fewer than 9 where the run diverged."""
    run = make_run(Recipe().with_values({**BASE, **values}), data=data)
    points = []
    while not run.finished:
        result = run.step()
        if result.diverged:
            break
        points.append([round(result.val_accuracy, 4), round(result.val_loss, 5)])
    return points


def _complete(
    kind: str,
    lr: float,
    decay: float,
    momentum: float,
    schedule: str,
    warmup: float,
    smoothing: float,
    crop: str,
) -> dict[str, Any]:
    """Return values by path within the box; those that the kinds lack are left out."""
    low, high = (1e-6, 1e-2) if kind == "sgd" else (1e-5, 1.0)
    values: dict[str, Any] = {
        "optimizer.kind": kind,
        "optimizer.lr": float(np.clip(lr, *((1e-4, 10.0) if kind == "sgd" else (1e-5, 1.0)))),
        "optimizer.weight_decay": float(np.clip(decay, low, high)),
        "schedule.kind": schedule,
        "regularisation.label_smoothing": float(smoothing),
        "augmentation.crop.kind": crop,
    }
    if kind == "sgd":
        values["optimizer.momentum"] = float(np.clip(momentum, 0.5, 0.99))
    if schedule != "onecycle":
        values["schedule.warmup_epochs"] = float(np.clip(warmup, 0.0, 3.0))
    return values


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train the recipes of the table of learning curves that other benchmarks replay."
    )
    parser.add_argument("--data", required=True, help="Fashion-MNIST's folder of IDX files")
    parser.add_argument("--recipes", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
