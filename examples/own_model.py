"""Trains a network of your own on images of your own, from Python: no YAML, no search, no Ray.

    python examples/own_model.py

The recipe says how to train: optimizer, schedule, augmentation, seeds. The images and the network come in as
objects; a recipe never names code.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn

from trainable.checks.finding import Finding
from trainable.run import make_run
from trainable.training.metrics import EpochResult
from tunebook import Recipe, check, from_arrays


def my_images() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return 1,797 handwritten digits as grey images, uint8 [N, 8, 8], with their labels [N] from 0 to 9."""
    images, labels = load_digits(return_X_y=True)
    return (images.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8), labels.astype(np.int64)


def my_network() -> nn.Module:
    """Return a network that turns images [B, 1, 8, 8] into logits [B, 10]."""
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )


def my_recipe(epochs: int = 10) -> Recipe:
    return Recipe().with_values(
        {
            "loop.epochs": epochs,
            "loop.batch_size": 64,
            "optimizer.kind": "adamw",
            "optimizer.lr": 4e-3,
            "schedule.warmup_epochs": 1.0,
        }
    )


def look_first(seconds: float = 20.0) -> list[Finding]:
    """Find what is wrong with the images, the network or its gradients, before hours are spent."""
    images, network = from_arrays(my_images()), my_network()
    findings = check(my_recipe(), data=images, model=network, debug=["gradcheck"], seconds=seconds)
    for each in findings:
        if each.level in ("error", "warning"):
            print(f"{each.level}: {each.check}: {each.what}; {each.do}")
    return findings


def train(epochs: int = 10) -> tuple[EpochResult, dict[str, float]]:
    """Return the last epoch's numbers, and the scores on the test part, which training never sees."""
    run = make_run(my_recipe(epochs), data=from_arrays(my_images()), model=my_network())
    while not run.finished:
        result = run.step()
        print(f"epoch {result.epoch:2}: loss {result.train_loss:.3f}, val_accuracy {result.val_accuracy:.4f}")
    scores = run.evaluate("test")
    run.close()
    return result, scores


if __name__ == "__main__":
    look_first()
    _, test_scores = train()
    print(f"test_accuracy {test_scores['test_accuracy']:.4f}")
