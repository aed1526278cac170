"""Compares a small student alone with the same one taught by a larger network, on the same images.

    python benchmarks/distillation.py --data FASHION_MNIST [--seeds 3] [--images 2000]

The student is ResNet-8 of width 8, its teacher one of width 32, trained on the same images with the same
recipe and seed. Digits are scikit-learn's, bundled; of Fashion-MNIST some random images are trained on.
Accuracies are those of the test part. AdamW takes equal steps whatever a loss is multiplied by, so that no
kind of distillation has another rate in disguise.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from report import described, environment, write
from trainable.data import ArrayPart, DataSet
from trainable.data.assembly import from_arrays, load
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.train import train

SMALL = 8
"""Larger images are halved by the networks' first layer: a CPU trains them here."""
ALONE, TEACHER = "student alone", "teacher"
ARMS: dict[str, dict[str, Any]] = {
    ALONE: {},
    "logits, T 4, half": {"distillation.kind": "logits"},
    "logits, T 4, all": {"distillation.kind": "logits", "distillation.weight": 1.0},
    "dkd, T 4, half": {"distillation.kind": "dkd"},
    "features, half": {"distillation.kind": "features"},
}
RUNS = (("digits", 20), ("digits", 60), ("Fashion-MNIST", 20))
"""The data and the epochs that are compared."""
VALIDATION = 500
Scores = dict[str, list[tuple[float, float]]]
"""These are the accuracy and the processor's seconds of each seed, by arm."""


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    where = environment(1)
    found: dict[str, Scores] = {}
    for seed in range(options.seeds):
        for name, epochs in RUNS:
            data = load(Data()) if name == "digits" else some_of(options.data, options.images, seed)
            scores = found.setdefault(f"{name}, {epochs} epochs", {})
            for arm, score in compared(data, epochs, seed):
                scores.setdefault(arm, []).append(score)
                print(name, epochs, seed, arm, *score, flush=True)
            write(options.name, {"environment": where, "scores": found}, page(found, options, where))


def some_of(path: str, count: int, seed: int) -> DataSet:
    """Return Fashion-MNIST with so many random training images, and its test part whole."""
    whole = load(Data(path=path, format="idx"))
    assert isinstance(whole.train, ArrayPart)
    assert isinstance(whole.validation, ArrayPart)
    assert isinstance(whole.test, ArrayPart)
    chosen = np.random.default_rng(seed).permutation(len(whole.train.labels))[:count]
    return from_arrays(
        (whole.train.images[chosen, 0], whole.train.labels[chosen]),
        (whole.validation.images[:VALIDATION, 0], whole.validation.labels[:VALIDATION]),
        (whole.test.images[:, 0], whole.test.labels),
    )


def compared(data: DataSet, epochs: int, seed: int) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the accuracy on the test part, and the seconds, of the teacher and of each arm."""
    small = data.info.image_size <= SMALL
    plain = Recipe().with_values(
        {
            "data.path": "digits" if data.info.path == "digits" else "arrays",
            "model": {"kind": "resnet_small", "depth": 8, "width": 8, "stem_stride": 1 if small else 2},
            "optimizer": {"kind": "adamw", "lr": 0.01},
            "schedule.warmup_epochs": 1.0,
            "precision.kind": "fp32",
            "loop.epochs": epochs,
            "loop.batch_size": 64,
            "loop.seed": seed,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        yield TEACHER, scored(plain.with_values({"model.width": 32}), data, Path(folder))
        for arm, values in ARMS.items():
            taught = {"distillation.teacher": folder, **values} if values else {}
            yield arm, scored(plain.with_values(taught), data)


def scored(recipe: Recipe, data: DataSet, out: Path | None = None) -> tuple[float, float]:
    """Return the accuracy on the test part and the seconds of one run."""
    began = time.process_time()
    outcome = train(recipe, data=data, out=out, test=True, device=torch.device("cpu"))
    assert outcome.test is not None
    return outcome.test.accuracy, time.process_time() - began


def page(found: dict[str, Scores], options: argparse.Namespace, where: dict[str, Any]) -> str:
    head = (
        "# What a teacher is worth\n\n"
        "ResNet-8 of width 8 (20,000 parameters) alone, and taught by one of width 32 (308,000) that was "
        f"trained on the same images: scikit-learn's digits (1,257), or {options.images:,} of Fashion-MNIST "
        "(at stride 2). AdamW at 0.01 (batch 256), batches of 64, cosine, padded crops. Accuracy on the test "
        "part, in points: mean ± standard deviation over n seeds (of images of Fashion-MNIST, weights and "
        "order). `gain`: the mean difference to the student alone with the same seed, ± its standard error. "
        "`seconds` are the processor's for a run, with the scoring of the test part.\n\n"
        "| data | network | n | accuracy | gain | seconds |\n|-|-|-|-|-|-|\n"
    )
    rows = [
        f"| {data} | {arm} | {len(scores[arm])} | {_cells(scores, arm)} |"
        for data, scores in found.items()
        for arm in (TEACHER, *ARMS)
    ]
    return head + "\n".join(rows) + "\n\n" + described(where)


def _cells(scores: Scores, arm: str) -> str:
    """Return the accuracy of an arm, its gain over the student alone, and its seconds."""
    ours = [100.0 * accuracy for accuracy, _ in scores[arm]]
    gains = [each - 100.0 * other for each, (other, _) in zip(ours, scores[ALONE], strict=False)]
    gain = "" if arm in (ALONE, TEACHER) else f"{statistics.fmean(gains):+.1f} ± {_error(gains):.1f}"
    seconds = statistics.fmean(each for _, each in scores[arm])
    return f"{statistics.fmean(ours):.1f} ± {_deviation(ours):.1f} | {gain} | {seconds:.0f}"


def _error(numbers: Sequence[float]) -> float:
    return _deviation(numbers) / math.sqrt(len(numbers))


def _deviation(numbers: Sequence[float]) -> float:
    return statistics.stdev(numbers) if len(numbers) > 1 else 0.0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare a student alone with a taught one.")
    parser.add_argument("--data", required=True)
    parser.add_argument("--images", type=int, default=2_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--name", default="distillation")
    return parser.parse_args()


if __name__ == "__main__":
    main()
