"""Defines a first trial: a recipe that a person asked for, before any is drawn."""

from __future__ import annotations

from typing import Any

from spaces.domains import Value
from trainable.files.paths import usable_path
from trainable.recipe.base import Spec

SHOWN = 5  # a line names so many fields


class First(Spec):
    """The mark of a trial that a person asked for."""

    source: str  # the recipe's file, or the place in the study
    # the fields because of which it lies outside the search's space: the search does not vary them, or its
    # range does not hold their values. Such a trial is trained as written; samplers and verdicts learn
    # nothing from it
    outside: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.outside:
            return self.source
        fields = f"{', '.join(self.outside[:SHOWN])}{', ...' if len(self.outside) > SHOWN else ''}"
        return (
            f"{self.source}, outside the space because of {fields}: no sampler and no verdict learns from it"
        )


class FirstTrial(First):
    """A first trial as it is trained."""

    values: dict[str, Value]  # the values by dotted path of what the space varies
    recipe: dict[str, Any]  # the whole recipe as plain data

    @property
    def mark(self) -> First:
        return First(source=self.source, outside=self.outside)


def first_entry(written: Any) -> Any:
    """Return what a person wrote as a first trial: a recipe's file, or values by dotted path. Raises
    ValueError for anything else."""
    match written:
        case str() if written:
            return usable_path(written)
        case dict():
            return written
    raise ValueError(f"expected the path of a recipe's file, or values by dotted path, got {written!r}")
