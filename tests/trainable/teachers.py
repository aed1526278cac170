"""Trains small networks that may teach others, and writes them as `train --out` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.trainable.small_runs import data_set, small_recipe
from trainable.data import DataSet
from trainable.recipe import Recipe
from trainable.train import train

LEARNING = {"optimizer.lr": 0.5, "loop.epochs": 6}


def write_teacher(folder: Path, data: DataSet | None = None, **values: Any) -> Path:
    """Train a network of width 16 for a few epochs and return the folder with its files; `values` have
    double underscores for dots."""
    train(
        small_recipe({"model.width": 16, **LEARNING, **dotted(values)}), data=data or data_set(), out=folder
    )
    return folder


def taught_recipe(teacher: Path | str, **values: Any) -> Recipe:
    """Return a small recipe that learns from a teacher."""
    return small_recipe({"distillation.teacher": str(teacher), **dotted(values)})


def dotted(values: dict[str, Any]) -> dict[str, Any]:
    return {path.replace("__", "."): value for path, value in values.items()}
