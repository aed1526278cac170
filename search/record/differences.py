"""Finds where two trees of plain data differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from spaces.domains import shown

ABSENT = object()


class Difference(NamedTuple):
    """A dotted path at which two trees differ, and what either has there."""

    path: str
    one: str
    other: str


def first_difference(one: Any, other: Any, path: str = "") -> Difference | None:
    """Return the first value in which two trees differ; None where they are equal."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys([*one, *other]):
            inner = f"{path}.{name}" if path else str(name)
            if found := first_difference(one.get(name, ABSENT), other.get(name, ABSENT), inner):
                return found
        return None
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return first_difference(dict(enumerate(one)), dict(enumerate(other)), path)
    return None if one == other else Difference(path, _in_words(one), _in_words(other))


def _in_words(value: Any) -> str:
    """Return a value as it is written; of a section only that it is there, of a list of them how many."""
    if isinstance(value, Mapping):
        return "there"
    if isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        return f"{len(value)} entries"
    return "absent" if value is ABSENT else shown(value)
