"""Checks that what a space can draw makes valid recipes:
numbers inside ranges, and ends alone and in pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, TypeVar

from pydantic import ValidationError

from spaces.domains import Choice, Float, Integer, SpaceError, Value, shown, value_at
from spaces.space import Dimension, Space
from trainable.errors import Fault, RecipeError
from trainable.recipe import Recipe
from trainable.recipe.base import Spec
from trainable.recipe.recipe import tree_with_values

S = TypeVar("S", bound=Spec)
MOST_TRIED = 1_000  # whole numbers of one range, at most
# At this share of a range lies a number that no person would write in a list of allowed values
GOLDEN = 0.381966


def check_recipes(space: Space) -> None:
    """Raise SpaceError with what the Recipe refuses of the values that may be drawn,
    or else of the own values."""
    trials = _Trials(space)
    for faults in (_end_faults(trials), iter(trials.refusals(space.own))):
        if found := list(dict.fromkeys(faults)):
            raise SpaceError(found)


class _Trials:
    """The recipes of a space, checked only in the sections that values lie in: the others are valid."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._sections = dict(space.base)

    def recipe(self, values: Mapping[str, Value]) -> Recipe:
        """Return the recipe with the values set. Raises RecipeError if there is none."""
        whole = self.space.set_in_base(values)
        try:
            tree = tree_with_values({**self._sections, **self._trees(whole)}, whole)
            return Recipe.model_validate(tree)
        except (RecipeError, ValidationError):
            return self.space.base.with_values(whole)  # this call raises RecipeError with the faults in words

    def refusals(self, values: Mapping[str, Value]) -> tuple[Fault, ...]:
        """Return the faults that the Recipe finds in the values; empty if it accepts them."""
        try:
            self.recipe(values)
        except RecipeError as error:
            return error.faults
        return ()

    def _trees(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """Return the sections that values lie in, as data that may be changed."""
        names = {path.partition(".")[0] for path in values}
        sections = {name: self._sections[name] for name in names if name in self._sections}
        return {name: each.model_dump() for name, each in sections.items() if isinstance(each, Spec)}


def _end_faults(trials: _Trials) -> Iterator[Fault]:
    """Yield what the Recipe refuses, in its words: numbers inside a domain, its ends, and pairs of ends."""
    space = trials.space
    ends: list[_AtEnd] = []
    alone = list(_gap_faults(trials))
    for dimension, chosen in _chosen(space):
        try:
            ends.append(_AtEnd(dimension, chosen, trials.recipe(chosen)))
        except RecipeError as error:
            alone += [_worded(space, fault, dimension, chosen) for fault in error.faults]
    yield from alone or _pair_faults(trials, ends)


def _gap_faults(trials: _Trials) -> Iterator[Fault]:
    """Yield a fault for each range whose ends the Recipe accepts, but not all numbers between, such as the
    depths of a residual net."""
    for dimension in trials.space.dimensions:
        domain = dimension.domain
        if isinstance(domain, Choice) or all(_accepts(trials, dimension, each) for each in _inner(domain)):
            continue
        if all(_accepts(trials, dimension, end) for end in domain.extremes()):
            whole = range(math.ceil(domain.low), math.floor(domain.high) + 1)[:MOST_TRIED]
            accepted = ", ".join(str(each) for each in whole if _accepts(trials, dimension, each))
            problem = f"from {domain.low:g} to {domain.high:g} the recipe accepts only {accepted}"
            yield Fault(dimension.name, f"{problem}: write {{choice: [{accepted}]}}")


def _inner(domain: Float | Integer) -> Sequence[Value]:
    """Return every number of a short range of whole numbers, or else one number that is in no list of
    allowed values."""
    if isinstance(domain, Integer):
        return range(domain.low, domain.high + 1)[:MOST_TRIED]
    return (value_at(domain, GOLDEN),)


def _accepts(trials: _Trials, dimension: Dimension, value: Value) -> bool:
    """Return whether a dimension may have a value under every condition in which it exists."""
    return not any(
        trials.refusals({**condition, dimension.path: value}) for condition in _conditions(dimension)
    )


@dataclass(frozen=True)
class _AtEnd:
    """A dimension at an end of its domain, with its condition met."""

    dimension: Dimension
    chosen: Mapping[str, Value]
    recipe: Recipe

    @property
    def shown_value(self) -> str:
        return shown(self.chosen[self.dimension.path])

    @cached_property
    def sections(self) -> frozenset[str]:
        """The sections that the chosen values lie in, each with its dot, such as
        `augmentation.crop.`."""
        return frozenset(path[: path.rfind(".") + 1] for path in self.chosen)

    @cached_property
    def heads(self) -> frozenset[str]:
        """The Recipe's own sections that the chosen values lie in, such as `augmentation`."""
        return frozenset(path.partition(".")[0] for path in self.chosen)


def _chosen(space: Space) -> Iterator[tuple[Dimension, dict[str, Value]]]:
    for dimension in space.dimensions:
        for condition in _conditions(dimension):
            for end in dimension.domain.extremes():
                yield dimension, {**condition, dimension.path: end}


def _conditions(dimension: Dimension) -> list[dict[str, Value]]:
    """Return, one by one, the values under which a dimension exists."""
    when = dimension.when
    return [{when.path: met} for met in when.values] if when else [{}]


def _pair_faults(trials: _Trials, ends: Sequence[_AtEnd]) -> Iterator[Fault]:
    """Yield a fault for two ends that exclude each other, such as a crop's least and largest scale."""
    compared = frozenset(name for end in ends for name in _compared(end.recipe))
    for one, other in combinations(ends, 2):
        if one.dimension.path == other.dimension.path:
            continue
        if any(one.chosen.get(path, value) != value for path, value in other.chosen.items()):
            continue  # their conditions exclude each other
        if not _join(one, other, compared):
            for fault in trials.refusals({**one.chosen, **other.chosen}):
                problem = f"{one.shown_value} with {other.dimension.path} {other.shown_value} is refused"
                yield Fault(one.dimension.name, f"{problem}: {fault}")


def _join(one: _AtEnd, other: _AtEnd, compared: Set[str]) -> bool:
    """Return whether two ends in different sections make a valid recipe;
    False if only a full trial of both can say.

    Each section is valid by itself. So only the Recipe's own validator is called, and only for sections that
    it compares: thirty dimensions have thousands of pairs.
    """
    if any(mine.startswith(its) or its.startswith(mine) for mine in one.sections for its in other.sections):
        return False
    if one.heads.isdisjoint(compared) or other.heads.isdisjoint(compared):
        return True
    joined = one.recipe
    for section in other.sections:
        joined = _with_section(joined, section.split(".")[:-1], other.recipe)
    try:
        joined.fields_agree()  # type: ignore[operator]  # pydantic's decorator hides that it is a method
    except ValueError:
        return False
    return True


def _compared(recipe: Recipe) -> Set[str]:
    """Return the sections that the Recipe's validator reads."""
    read = _ReadSections(recipe)
    Recipe.fields_agree(read)  # type: ignore[operator]
    return read.sections


class _ReadSections:
    """A recipe that notes which of its sections are read."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self.sections: set[str] = set()

    def __getattr__(self, section: str) -> Any:
        self.sections.add(section)
        return getattr(self._recipe, section)


def _with_section(node: S, path: Sequence[str], other: S) -> S:
    """Return a copy of `node` in which one section, at any depth, is that of `other`."""
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
