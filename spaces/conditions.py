"""Which fields a recipe has, and which kind of section each field belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spaces.domains import Choice, Domain, SpaceError, Value, Values, shown
from spaces.forms import kinds_having
from spaces.space import Dimension, When
from trainable.errors import Fault, RecipeError
from trainable.recipe import Recipe


def scalars_of(recipe: Recipe) -> dict[str, Value]:
    """Return every scalar of a recipe, by dotted path."""
    return {path: value for path, value in recipe.leaves() if isinstance(value, Value)}


def has(recipe: Recipe, path: str, values: Mapping[str, Value] | None = None) -> bool:
    """Return whether the recipe, with `values` set in it, has a field at `path`."""
    try:
        (recipe.with_values(values) if values else recipe).get(path)
    except RecipeError:
        return False
    return True


def holds(when: When | None, recipe: Recipe) -> bool:
    """Return whether a recipe meets a condition; None is always met."""
    return when is None or (has(recipe, when.path) and recipe.get(when.path) in when.values)


def value_of(recipe: Recipe, path: str) -> Any:
    """Return the recipe's value at `path`, or None if the kind of its section has no such field."""
    return recipe.get(path) if has(recipe, path) else None


def options_of(dimensions: Iterable[Dimension]) -> dict[str, tuple[Value, ...]]:
    """Return the options of all dimensions that are choices, by path."""
    return {each.path: each.domain.options for each in dimensions if isinstance(each.domain, Choice)}


def domains_of(dimensions: Iterable[Dimension]) -> dict[str, list[Domain]]:
    """Return the domains of all dimensions, by path: one for each variant of a path."""
    found: dict[str, list[Domain]] = {}
    for each in dimensions:
        found.setdefault(each.path, []).append(each.domain)
    return found


def kind_of(path: str) -> str:
    """Return the path of the `kind` field in the section of the field at `path`."""
    return f"{path.rpartition('.')[0]}.kind"


def check_had(path: str, options: Mapping[str, Sequence[Value]], own: Recipe) -> None:
    """Raise SpaceError if no trial has the field at `path`; the message names the kinds that have it.

    `options` holds the kinds that vary, by path. A kind that does not vary is the own recipe's.
    """
    kind, having = kind_of(path), kinds_having(path)
    if having and not set(having) & set(options.get(kind, (value_of(own, kind),))):
        raise SpaceError.at(path, f"exists when {When(kind, having)}, which no trial of this space has")


def check_fixed(base: Recipe, fixed: Values) -> None:
    """Raise SpaceError with every fixed field that the base does not have, after its fixed kinds are set."""
    faults = []
    for path, value in fixed.items():
        kind, having = kind_of(path), kinds_having(path)
        if having and fixed.get(kind, value_of(base, kind)) not in having:
            fixing = f": fix {kind} too, or write {{choice: [{shown(value)}]}}"
            advice = f", but {kind} is fixed to {shown(fixed[kind])}" if kind in fixed else fixing
            faults.append(Fault(path, f"exists when {When(kind, having)}{advice}"))
    if faults:
        raise SpaceError(faults)
