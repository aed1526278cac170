"""Whether what a space can draw are recipes: domains are tried within, their ends alone and two at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from spaces.domains import Choice, Float, Integer, Value, shown, value_at
from trainable.errors import Fault, RecipeError
from trainable.recipe import Recipe
from trainable.recipe.base import Spec

if TYPE_CHECKING:
    from spaces.space import Dimension, Space

S = TypeVar("S", bound=Spec)
MOST_TRIED = 1_000
"""Whole numbers of one range that are tried: some 0.1 ms each."""
GOLDEN = 0.381966
"""A share of a range at which no number stands that a person would list."""


def end_faults(space: Space) -> Iterator[Fault]:
    """What the Recipe refuses, in its words: within a domain, of its ends, and of two ends together."""
    ends: list[_End] = []
    alone = list(_gap_faults(space))
    for dimension, chosen in _chosen(space):
        try:
            ends.append(_End(dimension, chosen, space.recipe(chosen)))
        except RecipeError as error:
            alone += [_worded(space, fault, dimension, chosen) for fault in error.faults]
    yield from alone or _pair_faults(space, ends)


def refusals(space: Space, values: Mapping[str, Value]) -> tuple[Fault, ...]:
    """What the Recipe says against values; nothing where it takes them."""
    try:
        space.recipe(values)
    except RecipeError as error:
        return error.faults
    return ()


def _gap_faults(space: Space) -> Iterator[Fault]:
    """Ranges of which the Recipe takes the ends and not all between, such as the depths of a residual net."""
    for dimension in space.dimensions:
        domain = dimension.domain
        if isinstance(domain, Choice) or all(_taken(space, dimension, each) for each in _inner(domain)):
            continue
        if all(_taken(space, dimension, end) for end in domain.extremes()):
            whole = range(math.ceil(domain.low), math.floor(domain.high) + 1)[:MOST_TRIED]
            taken = ", ".join(str(each) for each in whole if _taken(space, dimension, each))
            told = f"from {domain.low:g} to {domain.high:g} the recipe takes {taken} alone"
            yield Fault(dimension.name, f"{told}: write {{choice: [{taken}]}}")


def _inner(domain: Float | Integer) -> Sequence[Value]:
    """Every number of a short range of whole ones; of other ranges one that stands in no list of numbers."""
    if isinstance(domain, Integer):
        return range(domain.low, domain.high + 1)[:MOST_TRIED]
    return (value_at(domain, GOLDEN),)


def _taken(space: Space, dimension: Dimension, value: Value) -> bool:
    """Whether a dimension may have a value wherever the dimension exists."""
    return not any(
        refusals(space, {**condition, dimension.path: value}) for condition in _conditions(dimension)
    )


@dataclass(frozen=True)
class _End:
    """A dimension at an end of its domain, its condition met."""

    dimension: Dimension
    chosen: Mapping[str, Value]
    recipe: Recipe

    @property
    def told(self) -> str:
        return shown(self.chosen[self.dimension.path])

    @cached_property
    def sections(self) -> frozenset[str]:
        """The sections that the chosen values lie in, each with its dot: `augmentation.crop.`."""
        return frozenset(path[: path.rfind(".") + 1] for path in self.chosen)


def _chosen(space: Space) -> Iterator[tuple[Dimension, dict[str, Value]]]:
    for dimension in space.dimensions:
        for condition in _conditions(dimension):
            for end in dimension.domain.extremes():
                yield dimension, {**condition, dimension.path: end}


def _conditions(dimension: Dimension) -> list[dict[str, Value]]:
    """The values under which a dimension exists, one after the other."""
    when = dimension.when
    return [{when.path: met} for met in when.values] if when else [{}]


def _pair_faults(space: Space, ends: Sequence[_End]) -> Iterator[Fault]:
    """Ends that the Recipe takes alone may exclude each other: a crop's least and largest scale."""
    for one, other in combinations(ends, 2):
        agree = all(one.chosen.get(path, value) == value for path, value in other.chosen.items())
        if one.dimension.path != other.dimension.path and agree and not _join(one, other):
            for fault in refusals(space, {**one.chosen, **other.chosen}):
                told = f"{one.told} with {other.dimension.path} {other.told} is refused"
                yield Fault(one.dimension.name, f"{told}: {fault}")


def _join(one: _End, other: _End) -> bool:
    """Whether ends in different sections make one recipe; False where only trying them together tells.

    Each section is sound by itself, so that only the Recipe's own validator is asked: a fiftieth of the time
    that a whole recipe takes, and thirty dimensions have thousands of pairs.
    """
    if any(mine.startswith(its) or its.startswith(mine) for mine in one.sections for its in other.sections):
        return False
    joined = one.recipe
    for section in other.sections:
        joined = _with_section(joined, section.split(".")[:-1], other.recipe)
    try:
        joined.fields_agree()  # type: ignore[operator]  # pydantic's decorator hides that it is a method
    except ValueError:
        return False
    return True


def _with_section(node: S, path: Sequence[str], other: S) -> S:
    """A copy with one section, however deep, taken from another."""
    name, *rest = path
    mine, its = getattr(node, name), getattr(other, name)
    return node.model_copy(update={name: _with_section(mine, rest, its) if rest else its})


def _worded(space: Space, fault: Fault, dimension: Dimension, values: Mapping[str, Value]) -> Fault:
    if fault.path in space.pins and fault.path not in values:
        section = f"{fault.path.rpartition('.')[0]}."
        kind = f"{section}kind" if f"{section}kind" in values else dimension.path
        reason = f"is pinned, but a trial may set {kind} to {shown(values[kind])}: {fault.message}"
        one = f"{{choice: [{shown(space.base.get(fault.path))}]}}"
        return Fault(fault.path, f"{reason}; pin {kind} too, or give it the override {one} instead")
    return Fault(dimension.name, f"{shown(values[dimension.path])} is refused by the recipe: {fault}")
