"""A Space: a base Recipe and what may vary, define by run, checked when built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import combinations

from spaces.domains import Choice, Domain, SpaceError, Value, shown
from trainable.errors import Fault, RecipeError
from trainable.recipe import Recipe

Values = Mapping[str, Value]
"""Values by dotted path."""


@dataclass(frozen=True)
class When:
    """A dimension exists only if the value drawn at `path`, or else the base recipe's, is one of `values`."""

    path: str
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.path} is {' or '.join(map(shown, self.values))}"


@dataclass(frozen=True)
class Dimension:
    """One field that varies, in which domain, why, and who says so.

    `variant` tells apart the dimensions of one path that exist under different conditions, such as the rate
    of each optimizer.
    """

    path: str
    domain: Domain
    reason: str
    source: str
    when: When | None = None
    variant: str = ""

    @property
    def name(self) -> str:
        """Unique in a space: the path, or `optimizer.lr[sgd]` where a path has several dimensions."""
        return f"{self.path}[{self.variant}]" if self.variant else self.path


@dataclass(frozen=True)
class Space:
    """What a search may draw: `dimensions` in drawing order, over a settled `base` recipe.

    `own` holds the documents' own recipe as values: the first trial, which may lie outside a domain that a
    person narrowed. `pins` are the paths that a person fixed in the base: a trial that switches a section's
    kind keeps them. Raises SpaceError with every fault: a name that stands twice, a condition on what is
    drawn later, an end of a domain (alone, or together with another's) or own values that the Recipe refuses.
    """

    base: Recipe
    dimensions: tuple[Dimension, ...]
    own: Values
    pins: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for check in (self._order_faults, self._refused_ends, self._refused_pairs, self._own_faults):
            if faults := list(dict.fromkeys(check())):
                raise SpaceError(faults)

    def define(self, draw: Callable[[Dimension], Value]) -> dict[str, Value]:
        """Values by path, drawn in order, for the dimensions that exist given the values drawn before."""
        values: dict[str, Value] = {}
        for dimension in self.dimensions:
            if self._exists(dimension, values):
                values[dimension.path] = draw(dimension)
        return values

    def recipe(self, values: Values) -> Recipe:
        """The base with the values set. Raises RecipeError where the Recipe refuses them."""
        return self.base.with_values({**self._carried(values), **values})

    def named(self, values: Values) -> dict[str, Value]:
        """Values by path as values by dimension name; `values_of` turns them back.

        Raises SpaceError unless there is one value for each dimension that exists, and no other.
        """
        active = self._active(values)
        if faults := _unequal(values.keys(), {each.path for each in active}):
            raise SpaceError(faults)
        return {each.name: values[each.path] for each in active}

    def values_of(self, named: Values) -> dict[str, Value]:
        """Values by dimension name as values by path. Raises SpaceError as `named` does."""

        def look_up(dimension: Dimension) -> Value:
            if dimension.name not in named:
                raise SpaceError([Fault(dimension.name, "expected a value, got none")])
            return named[dimension.name]

        values = self.define(look_up)
        if faults := _unequal(named.keys(), self.named(values).keys()):
            raise SpaceError(faults)
        return values

    def _active(self, values: Values) -> list[Dimension]:
        return [each for each in self.dimensions if self._exists(each, values)]

    def _exists(self, dimension: Dimension, values: Values) -> bool:
        if (when := dimension.when) is None:
            return True
        return (values[when.path] if when.path in values else self.base.get(when.path)) in when.values

    def _carried(self, values: Values) -> dict[str, Value]:
        """The pinned fields of sections whose kind the values switch, which would else take its defaults."""
        switched = {
            path.removesuffix("kind")
            for path, value in values.items()
            if path.endswith(".kind") and value != self.base.get(path)
        }
        return {
            pin: self.base.get(pin) for pin in sorted(self.pins) if f"{pin.rpartition('.')[0]}." in switched
        }

    # --- checks when built

    def _order_faults(self) -> Iterator[Fault]:
        names: set[str] = set()
        later = [each.path for each in self.dimensions]
        for dimension in self.dimensions:
            if dimension.name in names:
                yield Fault(dimension.path, f"expected each dimension once, got {dimension.name!r} again")
            if dimension.when is not None and dimension.when.path in later:
                yield Fault(dimension.path, f"exists when {dimension.when}, which is drawn later")
            names.add(dimension.name)
            later.remove(dimension.path)

    def _refused_ends(self) -> Iterator[Fault]:
        for dimension, values in self._ends():
            for fault in self._refusals(values):
                yield self._worded(fault, dimension, values)

    def _refused_pairs(self) -> Iterator[Fault]:
        """Ends that the Recipe takes alone may exclude each other: a crop's least and largest scale."""
        for (one, these), (other, those) in combinations(self._ends(), 2):
            agree = all(these.get(path, value) == value for path, value in those.items())
            if one.path != other.path and agree:
                for fault in self._refusals({**these, **those}):
                    told = f"{shown(these[one.path])} with {other.path} {shown(those[other.path])} is refused"
                    yield Fault(one.path, f"{told}: {fault}")

    def _ends(self) -> Iterator[tuple[Dimension, dict[str, Value]]]:
        """Each dimension with values that put it at an end of its domain, its condition met."""
        for dimension in self.dimensions:
            conditions = (
                [{dimension.when.path: met} for met in dimension.when.values] if dimension.when else [{}]
            )
            for condition in conditions:
                for end in dimension.domain.extremes():
                    yield dimension, {**condition, dimension.path: end}

    def _refusals(self, values: Values) -> tuple[Fault, ...]:
        try:
            self.recipe(values)
        except RecipeError as error:
            return error.faults
        return ()

    def _worded(self, fault: Fault, dimension: Dimension, values: Values) -> Fault:
        if fault.path in self.pins and fault.path not in values:
            section = f"{fault.path.rpartition('.')[0]}."
            kind = f"{section}kind" if f"{section}kind" in values else dimension.path
            reason = f"is pinned, but a trial may set {kind} to {shown(values[kind])}: {fault.message}"
            return Fault(fault.path, f"{reason}; pin {kind} too, or drop this pin")
        return Fault(dimension.path, f"{shown(values[dimension.path])} is refused by the recipe: {fault}")

    def _own_faults(self) -> Iterator[Fault]:
        yield from _unequal(self.own.keys(), {each.path for each in self._active(self.own)})
        yield from self._refusals(self.own)
        for dimension in self._active(self.own):
            if isinstance(dimension.domain, Choice) and self.own.get(dimension.path) not in dimension.domain:
                told = f"expected {dimension.domain} in the first trial"
                yield Fault(dimension.path, f"{told}, got {shown(self.own.get(dimension.path))}")


def _unequal(got: Set[str], expected: Set[str]) -> list[Fault]:
    absent = [Fault(name, "expected a value, got none") for name in sorted(expected - got)]
    known = ", ".join(sorted(expected)) or "none"
    surplus = [Fault(name, f"is no dimension here; known: {known}") for name in sorted(got - expected)]
    return absent + surplus
