"""Recipes with what is known of their images, for the tests of formats; no image is read."""

from __future__ import annotations

from typing import Any

from search.results.formats.winner import Winner
from spaces.facts import Facts
from tests.spaces.small_facts import digits_facts
from trainable.data import DataInfo
from trainable.recipe import Recipe

CLASSES = ("ant", "bee", "cow")
BASE: dict[str, Any] = {
    "data.path": "pets",
    "data.channels": 3,
    "data.image_size": 32,
    "data.flips": ["horizontal"],
    "data.interpolation": "bilinear",
    "data.normalisation": "data",
    "loop.epochs": 4,
    "loop.batch_size": 32,
    "precision.kind": "fp32",
}


def recipe_of(**values: Any) -> Recipe:
    """Return a small recipe, with values by dotted path (`__` for the dot)."""
    return Recipe().with_values(BASE | {path.replace("__", "."): value for path, value in values.items()})


def winner_of(recipe: Recipe, **changes: Any) -> Winner:
    """Return a recipe with 320 training images of three classes, as its `data` say they look."""
    data = recipe.data
    channels, side = data.channels or 3, data.image_size or 32
    info = DataInfo(
        path=data.path,
        format="folder",
        classes=CLASSES,
        channels=channels,
        image_size=side,
        train_images=320,
        validation_images=60,
        test_images=60,
        class_counts=(160, 120, 40),
        mean=(0.5, 0.4, 0.3)[:channels],
        std=(0.2, 0.3, 0.25)[:channels],
        flips=data.flips or (),
        digest="0",
        in_memory=True,
        interpolation=data.interpolation or "bilinear",
    )
    facts: Facts = digits_facts(train_images=320, classes=3, channels=channels, image_size=side)
    return Winner(recipe, info, facts, **{"title": "a recipe", **changes})
