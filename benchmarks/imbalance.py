"""Compares what corrects for unequal classes, on Fashion-MNIST images whose classes shrink exponentially.

    python benchmarks/imbalance.py --data FASHION_MNIST [--ratios 10 100] [--seeds 3] [--epochs 15]

The largest class has --largest training images, and the smallest 1 / ratio of them (as in arXiv 1901.05555,
section 5.1). The published test part, 1,000 images of each class, is scored: `balanced` is the mean recall of
the classes, and `natural` is the recall weighted by the classes' shares of the training images, which is what
a validation part split from the same data calls accuracy. Everything but the correction is the same.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from report import described, environment, write
from trainable.data import ArrayPart, DataSet
from trainable.data.assembly import from_arrays, load
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.run import make_run

WEIGHTS = "regularisation.class_weights"
ARMS: dict[str, dict[str, Any]] = {
    "none": {},
    "weights, inverse": {f"{WEIGHTS}.kind": "inverse"},
    "weights, effective number .999": {f"{WEIGHTS}.kind": "effective_number", f"{WEIGHTS}.beta": 0.999},
    "sampling, sqrt": {"loop.sampling": "sqrt"},
    "sampling, balanced": {"loop.sampling": "balanced"},
    "logit adjustment, 0.5": {"regularisation.logit_adjustment": 0.5},
    "logit adjustment, 1": {"regularisation.logit_adjustment": 1.0},
    "logit adjustment, 1.5": {"regularisation.logit_adjustment": 1.5},
    "sampling, sqrt, and logit adjustment, 1": {
        "loop.sampling": "sqrt",
        "regularisation.logit_adjustment": 1.0,
    },
}
VALIDATION = 500
Found = dict[str, list[tuple[float, float]]]
"""These are the balanced and the natural score of each seed, by arm."""


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    where = environment(1)
    whole = load(Data(path=options.data, format="idx"))
    found: dict[int, Found] = {ratio: {arm: [] for arm in ARMS} for ratio in options.ratios}
    for seed in range(options.seeds):
        for ratio, scores in found.items():
            data = unequal(whole, options.largest, ratio, seed)
            for arm, values in ARMS.items():
                scores[arm].append(scored(data, values, seed, options))
                print(seed, ratio, arm, *scores[arm][-1], flush=True)
        write(options.name, {"environment": where, "scores": found}, page(found, options, where))


def unequal(whole: DataSet, largest: int, ratio: int, seed: int) -> DataSet:
    """Return a training part with classes of `largest * ratio ** -(class / last)` images, and the test part
    whole."""
    assert isinstance(whole.train, ArrayPart)
    assert isinstance(whole.validation, ArrayPart)
    assert isinstance(whole.test, ArrayPart)
    random = np.random.default_rng(seed)
    labels, last = whole.train.labels, len(whole.info.classes) - 1
    chosen = np.concatenate(
        [
            random.permutation(np.flatnonzero(labels == label))[: round(largest * ratio ** -(label / last))]
            for label in range(last + 1)
        ]
    )
    some = slice(VALIDATION)
    return from_arrays(
        (whole.train.images[chosen, 0], labels[chosen]),
        (whole.validation.images[some, 0], whole.validation.labels[some]),
        (whole.test.images[:, 0], whole.test.labels),
    )


def scored(
    data: DataSet, values: dict[str, Any], seed: int, options: argparse.Namespace
) -> tuple[float, float]:
    """Return the balanced and the natural score of one run on the test part."""
    recipe = Recipe().with_values(
        {
            "data.path": "arrays",
            "model": {"kind": "resnet_small", "depth": 8, "width": 8, "stem_stride": 2},
            "optimizer.lr": options.lr,
            "schedule.warmup_epochs": 1.0,
            "precision.kind": "fp32",
            "loop.epochs": options.epochs,
            "loop.batch_size": 64,
            "loop.seed": seed,
            **values,
        }
    )
    run = make_run(recipe, data=data, device=torch.device("cpu"))
    while not run.finished:
        run.step()
    scores = run.score("test", confusion=True)
    run.close()
    confusion = np.array(scores.confusion)
    recalls = confusion.diagonal() / confusion.sum(1)
    held = np.array(data.info.class_counts)
    return float(recalls.mean()), float((recalls * held).sum() / held.sum())


def page(found: dict[int, Found], options: argparse.Namespace, where: dict[str, Any]) -> str:
    head = (
        "# What corrects for unequal classes\n\n"
        f"Fashion-MNIST, {options.largest} training images of the largest class; ResNet-8 of width 8 with "
        f"stride 2, SGD at {options.lr:g} (batch 256), batches of 64, {options.epochs} epochs, cosine. Mean "
        f"± standard deviation over {options.seeds} seeds (of images, weights and order), in points. `gain`: "
        "the mean difference to `none` with the same seed, ± its standard error.\n\n"
        "| ratio | correction | balanced | gain | natural | gain |\n|-|-|-|-|-|-|\n"
    )
    rows = [
        f"| {ratio} | {arm} | {_cells(scores, arm, 0)} | {_cells(scores, arm, 1)} |"
        for ratio, scores in found.items()
        for arm in ARMS
    ]
    return head + "\n".join(rows) + "\n\n" + described(where)


def _cells(scores: Found, arm: str, which: int) -> str:
    """Return the score of an arm, and its gain over no correction."""
    ours = [100.0 * each[which] for each in scores[arm]]
    gains = [each - 100.0 * other[which] for each, other in zip(ours, scores["none"], strict=False)]
    gain = (
        ""
        if arm == "none"
        else f"{statistics.fmean(gains):+.1f} ± {_deviation(gains) / len(gains) ** 0.5:.1f}"
    )
    return f"{statistics.fmean(ours):.1f} ± {_deviation(ours):.1f} | {gain}"


def _deviation(numbers: Sequence[float]) -> float:
    return statistics.stdev(numbers) if len(numbers) > 1 else 0.0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare corrections for unequal classes.")
    parser.add_argument("--data", required=True)
    parser.add_argument("--ratios", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--largest", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--name", default="imbalance")
    return parser.parse_args()


if __name__ == "__main__":
    main()
