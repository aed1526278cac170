"""Searches a recipe for a network and images of your own, from Python.

    python examples/own_search.py    # stop it with Ctrl-C; run it again, and it goes on

The depth and the width of the network are searched beside everything else. The study is data and names no
code; the functions travel to the processes that train, also to other machines.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn

import tunebook
from tunebook import Choice, Integer, Search

DEPTH, WIDTH = "model.arguments.depth", "model.arguments.width"


def build_model(classes: int, channels: int, depth: int = 2, width: int = 32) -> nn.Module:
    """Return a network that turns images [B, channels, H, W] into logits [B, classes]."""
    sides = [channels] + [width] * depth
    blocks = [
        nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())
        for before, after in pairwise(sides)
    ]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, classes))


def make_data() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return 1,797 handwritten digits, uint8 [N, 8, 8], with their labels [N]."""
    images, labels = load_digits(return_X_y=True)
    return (images.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8), labels.astype(np.int64)


def run(trials: int = 8, epochs: int = 10) -> Search:
    """Return the search when it is finished; its best recipe is `best.yaml` in its folder."""
    return tunebook.search(
        {"name": "own-digits", "budget": {"trials": trials, "epochs": epochs}},
        model=build_model,
        data=make_data,
        space={DEPTH: Choice((1, 2, 3)), WIDTH: Integer(16, 64, log=True)},
    )


def train_best(found: Search, out: str) -> float:
    """Train the best recipe again, with the same functions, and return its score on the test part."""
    best = found.folder / "best.yaml"
    outcome = tunebook.train(best, model=build_model, data=make_data, out=out, test=True)
    return float(outcome.scores()["test_accuracy"])


if __name__ == "__main__":
    found = run()
    print(found.trials_frame()[["state", "val_accuracy", DEPTH, WIDTH]])
    print(f"test_accuracy {train_best(found, out='own-digits-model'):.4f}")
