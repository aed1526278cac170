"""How well trials do at each point of a small space, and what was found of them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from search.learning.refine import Refined
from tests.search.planted_searches import Images, Landscape, Run

At = Mapping[str, float]

RATE, DECAY = "optimizer.lr", "optimizer.weight_decay"
BASE = {"optimizer.kind": "sgd"}
RANGES: dict[str, Any] = {RATE: {"log": [0.01, 1.0]}, DECAY: {"log": [1e-5, 1e-3]}}
SMALL: dict[str, Any] = {"space__name": "quick", "base": BASE, "space__overrides": RANGES}
MANY = Images(train=70_000, validation=15_000, test=15_000)
LARGER = Images(train=70_000, validation=15_000, test=15_000, side=32)


def towards(end: float, name: str = RATE) -> Landscape:
    """Make trials the better, the nearer they come to a position, which may lie beyond 0 or 1."""

    def landscape(at: At, luck: random.Random) -> Run:
        accuracy = 0.9 - 0.1 * (at.get(name, 0.0) - end) ** 2 + luck.gauss(0.0, 0.002)
        return Run(accuracy, accuracy + 0.03)

    return landscape


def ending(
    train: float, accuracy: float, worse_with: str | None = None, *, rise: float = 0.0, swing: float = 0.0
) -> Landscape:
    """Make trials end like this, and worse with the last of a field's options if it is named."""

    def landscape(at: At, luck: random.Random) -> Run:
        lost = 0.02 if worse_with is not None and at[worse_with] > 0.5 else 0.0
        lost += 0.02 * (at[RATE] - 0.5) ** 2 + luck.gauss(0.0, 0.001)
        return Run(accuracy - lost, train - lost, rise, swing)

    return landscape


def after(found: Refined) -> dict[str, str]:
    """Return the value after each change, by path."""
    return {each.path: each.after for each in found.edits}


def left(found: Refined) -> dict[str, str]:
    """Return why each thing was left."""
    return {each.about: each.why for each in found.left_alone}
