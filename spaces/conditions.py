"""Which fields a recipe has, and of which kinds they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spaces.domains import Choice, Domain, SpaceError, Value, shown
from spaces.forms import kinds_having
from spaces.space import Dimension, Values, When
from trainable.errors import Fault, RecipeError
from trainable.recipe import Recipe


def settled_values(recipe: Recipe) -> dict[str, Value]:
    """Every scalar of a recipe, by dotted path."""
    return {path: value for path, value in recipe.leaves() if isinstance(value, Value)}


def has(recipe: Recipe, path: str, values: Mapping[str, Value] | None = None) -> bool:
    """Whether a recipe with the values set has a field."""
    try:
        (recipe.with_values(values) if values else recipe).get(path)
    except RecipeError:
        return False
    return True


def holds(when: When | None, recipe: Recipe) -> bool:
    """Whether a recipe meets a condition; none at all is met."""
    return when is None or (has(recipe, when.path) and recipe.get(when.path) in when.values)


def value_of(recipe: Recipe, path: str) -> Any:
    """A recipe's value, or None where its kind has no such field."""
    return recipe.get(path) if has(recipe, path) else None


def options_of(dimensions: Iterable[Dimension]) -> dict[str, tuple[Value, ...]]:
    """The options of all dimensions that are choices, by path."""
    return {each.path: each.domain.options for each in dimensions if isinstance(each.domain, Choice)}


def domains_of(dimensions: Iterable[Dimension]) -> dict[str, list[Domain]]:
    """The domains of all dimensions, by path; those of variants one after the other."""
    found: dict[str, list[Domain]] = {}
    for each in dimensions:
        found.setdefault(each.path, []).append(each.domain)
    return found


def kind_of(path: str) -> str:
    """The path of the kind that a field's section is of."""
    return f"{path.rpartition('.')[0]}.kind"


def check_had(path: str, options: Mapping[str, Sequence[Value]], own: Recipe) -> None:
    """Raises SpaceError where no trial has a field, naming the kinds that have it.

    `options` are the kinds that vary, by path; else the own recipe's is the only one.
    """
    kind, having = kind_of(path), kinds_having(path)
    if having and not set(having) & set(options.get(kind, (value_of(own, kind),))):
        told = f"exists when {When(kind, having)}, which no trial of this space has"
        raise SpaceError([Fault(path, told)])


def check_fixed(base: Recipe, fixed: Values) -> None:
    """Raises SpaceError for every fixed field that the base has none of, its kinds fixed too."""
    faults = []
    for path, value in fixed.items():
        kind, having = kind_of(path), kinds_having(path)
        if having and fixed.get(kind, value_of(base, kind)) not in having:
            fixing = f": fix {kind} too, or write {{choice: [{shown(value)}]}}"
            advice = f", but {kind} is fixed to {shown(fixed[kind])}" if kind in fixed else fixing
            faults.append(Fault(path, f"exists when {When(kind, having)}{advice}"))
    if faults:
        raise SpaceError(faults)
