"""Defines what is proposed after a run: one field of its recipe, and another value of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from trainable.recipe import Recipe


@dataclass(frozen=True)
class Remedy:
    """Holds one field to change: this recipe accepts the value `to` there,
    as `--set PATH=TO` would set it."""

    path: str
    now: Any
    to: Any
    why: str
    source: str

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.now)} -> {_shown(self.to)}: {self.why} ({self.source})"

    def tree(self) -> dict[str, Any]:
        return asdict(self)


def change(recipe: Recipe, path: str, to: Any, why: str, source: str) -> Remedy:
    """Return the remedy that replaces the value at a path of the recipe."""
    return Remedy(path, recipe.get(path), to, why, source)


def _shown(value: Any) -> str:
    """Return a value as it is written after `--set PATH=`."""
    if value is None:
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)
