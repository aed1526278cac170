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

from search import search
from spaces.domains import Choice, Integer

DEPTH, WIDTH = "model.arguments.depth", "model.arguments.width"


def build_model(classes: int, channels: int, depth: int = 2, width: int = 32) -> nn.Module:
    """Returns a network that turns images [B, channels, H, W] into logits [B, classes]."""
    sides = [channels] + [width] * depth
    blocks = [
        nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())
        for before, after in pairwise(sides)
    ]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, classes))


def make_data() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns 1,797 handwritten digits, uint8 [N, 8, 8], with their labels [N]."""
    images, labels = load_digits(return_X_y=True)
    return (images.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8), labels.astype(np.int64)


if __name__ == "__main__":
    found = search(
        {"name": "own-digits", "budget": {"trials": 8, "epochs": 10}},
        model=build_model,
        data=make_data,
        space={DEPTH: Choice((1, 2, 3)), WIDTH: Integer(16, 64, log=True)},
    )
    print(found.trials_frame()[["state", "val_accuracy", DEPTH, WIDTH]])
    # the best recipe trains again, with the same functions (train is in trainable.train):
    #   train(read_recipe(found.folder / "best.yaml"), model=build_model, data=make_data, out="model")
