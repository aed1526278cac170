"""Measures what early scores say of the last, with BatchNorm's running statistics lagging or measured.

    python benchmarks/early_scores.py --data FASHION_MNIST [--recipes 24] [--epochs 9]

Recipes differ in learning rate, momentum and weight decay, drawn wide. Each is trained once; after each epoch
its weights are scored twice: with the running statistics of training (`evaluation.norm_batches: 0`), and with
statistics measured on a few batches (the default). The figure is Spearman's rank correlation with the final
accuracy over the recipes, with a 95 % bootstrap interval.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr

from report import described, environment, refuse_busy_machine, write
from trainable.data import ArrayPart, DataSet
from trainable.data.assembly import from_arrays, load
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.run import make_run

TRAIN, VALIDATION = 4_000, 2_000
RESAMPLES = 2_000
Scores = NDArray[np.float64]


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    refuse_busy_machine(1)
    where = environment(1)
    data = images_of(options.data)
    random = np.random.default_rng(options.seed)
    drawn = [draw(random) for _ in range(options.recipes)]
    scores = np.array([curves(values, data, options.epochs) for values in drawn])
    record = {
        "environment": where,
        "recipes": drawn,
        "scores": scores.tolist(),
        "axes": "recipe, epoch, kind",
    }
    write(options.name, record, _page(scores, where))


def draw(random: np.random.Generator) -> dict[str, float]:
    return {
        "optimizer.lr": float(10 ** random.uniform(-2, 1)),
        "optimizer.momentum": float(random.uniform(0.8, 0.97)),
        "optimizer.weight_decay": float(10 ** random.uniform(-5, -2)),
    }


def curves(values: dict[str, float], data: DataSet, epochs: int) -> list[tuple[float, float]]:
    """Return, after each epoch, the validation accuracy with lagging and with measured statistics."""
    plainly: dict[str, Any] = {
        "loop.batch_size": 64,
        "loop.epochs": epochs,
        "augmentation.crop.kind": "none",
        "augmentation.flip_probability": 0.0,
        "precision.kind": "fp32",
        **values,
    }
    measuring = Recipe().with_values(plainly)
    trained = make_run(measuring.with_values({"evaluation.norm_batches": 0}), data=data)
    scored = make_run(measuring, data=data)
    found = []
    while not trained.finished:
        lagging = trained.step().val_accuracy
        scored.model.load_state_dict(trained.model.state_dict())
        found.append((lagging, scored.score("validation").accuracy))
    return found + [(0.0, 0.0)] * (epochs - len(found))


def correlation(early: Scores, final: Scores) -> tuple[float, float, float]:
    """Return Spearman's rank correlation, with the ends of its interval."""
    random = np.random.default_rng(0)
    picks = random.integers(len(final), size=(RESAMPLES, len(final)))
    resampled = [spearmanr(early[pick], final[pick]).statistic for pick in picks]
    low, high = np.nanpercentile(resampled, [2.5, 97.5])
    return float(spearmanr(early, final).statistic), float(low), float(high)


def images_of(folder: str) -> DataSet:
    part = load(Data(path=folder, in_memory=True)).train
    assert isinstance(part, ArrayPart)
    images, labels = part.images[:, 0], part.labels
    return from_arrays(
        (images[:TRAIN], labels[:TRAIN]),
        (images[TRAIN : TRAIN + VALIDATION], labels[TRAIN : TRAIN + VALIDATION]),
    )


def _page(scores: Scores, where: dict[str, Any]) -> str:
    recipes, epochs, _ = scores.shape
    rows = []
    for epoch in range(epochs - 1):
        cells = []
        for kind in range(2):
            value, low, high = correlation(scores[:, epoch, kind], scores[:, -1, 1])
            cells.append(f"{scores[:, epoch, kind].mean():.3f} | {value:.2f} ({low:.2f} to {high:.2f})")
        rows.append(f"| {epoch + 1} | {' | '.join(cells)} |")
    table = "\n".join(rows)
    return (
        "# What an early score says of the last\n\n"
        f"{recipes} recipes of ResNet-8 on {TRAIN:,} Fashion-MNIST images, {epochs} epochs, batch 64: rates "
        "from 0.01 to 10, momentum from 0.8 to 0.97, decay from 1e-5 to 1e-2. Spearman's rank correlation "
        "with the final accuracy, with 95 % bootstrap intervals over the recipes.\n\n"
        "| epoch | mean accuracy, lagging | correlation | mean accuracy, measured | correlation |\n"
        f"|-|-|-|-|-|\n{table}\n\nFinal mean accuracy: lagging {scores[:, -1, 0].mean():.3f}, "
        f"measured {scores[:, -1, 1].mean():.3f}.\n\n{described(where)}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Correlate early scores with final ones, with lagging and measured statistics."
    )
    parser.add_argument("--data", required=True, help="Fashion-MNIST's folder of IDX files")
    parser.add_argument("--recipes", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="early-scores")
    return parser.parse_args()


if __name__ == "__main__":
    main()
