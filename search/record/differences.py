"""Finds where two trees of plain data differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

ABSENT = "absent"


class Difference(NamedTuple):
    """Names one value by its dotted path, and holds what either tree has there."""

    path: str
    one: Any
    other: Any


def first_difference(one: Any, other: Any, path: str = "") -> Difference | None:
    """Returns the first value in which two trees differ; None where they are equal."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys([*one, *other]):
            inner = f"{path}.{name}" if path else str(name)
            if found := first_difference(one.get(name, ABSENT), other.get(name, ABSENT), inner):
                return found
        return None
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return first_difference(dict(enumerate(one)), dict(enumerate(other)), path)
    return None if one == other else Difference(path, one, other)
