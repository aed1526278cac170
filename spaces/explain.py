"""Why every range and value is what it is, as rows to print or to write beside the values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from spaces.catalog import document
from spaces.domains import shown
from spaces.facts import Facts
from spaces.fields import PURPOSES
from spaces.heuristics import details, frame, rulings
from spaces.rulings import Rulings
from spaces.space import Dimension, Space
from trainable.recipe import Recipe


class Row(NamedTuple):
    """One range or value: its dotted path or dimension name, what it is, why, and who says so."""

    path: str
    what: str
    reason: str
    source: str


def space_rows(space: Space, facts: Facts) -> list[Row]:
    """What varies, in drawing order, then every fixed value in the recipe's order."""
    varying = [
        Row(each.name, f"{each.domain}; when {each.when}" if each.when else str(each.domain), *_why(each))
        for each in space.dimensions
    ]
    paths = {each.path for each in space.dimensions}
    ruled = rulings(facts, space.base, space.pins)
    fixed = [
        _pinned(path, value) if path in space.pins else _row(path, value, ruled, [])
        for path, value in leaves(space.base)
        if path not in paths
    ]
    return varying + fixed


def recipe_rows(recipe: Recipe, facts: Facts | None = None) -> list[Row]:
    """Every value of a recipe; with facts, each against the documents' value or range for them."""
    if facts is None:
        return [_row(path, value, {}, []) for path, value in leaves(recipe)]
    ruled = frame(facts) | details(facts, recipe)
    ranges = [each for each in document(facts, recipe.loop.batch_size) if _applies(each, recipe)]
    return [_row(path, value, ruled, ranges) for path, value in leaves(recipe)]


def reasons(recipe: Recipe, facts: Facts) -> dict[str, str]:
    """A comment for each value of a recipe, by dotted path: `reason (source)`."""
    return {row.path: f"{row.reason} ({row.source})" for row in recipe_rows(recipe, facts)}


def leaves(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """Every dotted path with its value, provenance left out; lists are one value."""
    tree = recipe.tree()
    tree.pop("provenance", None)
    yield from _leaves(tree, "")


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _applies(dimension: Dimension, recipe: Recipe) -> bool:
    when = dimension.when
    return when is None or recipe.get(when.path) in when.values


def _row(path: str, value: Any, ruled: Rulings, ranges: list[Dimension]) -> Row:
    """The rule's reason where the value is the rule's; else the range's that it lies in; else the field's."""
    ruling = ruled.get(path)
    if ruling is not None and value == ruling.what:
        return Row(path, _shown(value), ruling.reason, ruling.source)
    for dimension in ranges:
        if dimension.path == path and value in dimension.domain:
            return Row(path, _shown(value), f"from {dimension.domain}: {dimension.reason}", dimension.source)
    if ruling is not None:
        told = f"written by hand; the rule gives {shown(ruling.what)}: {ruling.reason}"
        return Row(path, _shown(value), told, ruling.source)
    return Row(path, _shown(value), *PURPOSES[path])


def _pinned(path: str, value: Any) -> Row:
    return Row(path, _shown(value), f"pinned; {PURPOSES[path].reason}", "written in the study")


def _why(dimension: Dimension) -> tuple[str, str]:
    return dimension.reason, dimension.source


def _shown(value: Any) -> str:
    return f"[{', '.join(map(shown, value))}]" if isinstance(value, list) else shown(value)
