"""A Space: a base Recipe and what may vary, drawn value by value, and checked when built.

`concentration` measures how strongly its priors narrow it, compared with uniform draws.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, assert_never

from spaces.domains import Choice, Domain, SpaceError, Value, fraction_of, shown
from spaces.domains import Values as Values
from spaces.priors import Normal, Prior, Uniform, Weights, check_prior, density, quantile_value
from spaces.tables import Table, answer, answers, read_paths
from trainable.errors import Fault
from trainable.recipe import Recipe
from trainable.recipe.models import network_fields

DRAWS, POINTS = 64, 64  # the concentration is a mean over so many trials, each prior's at so many points


@dataclass(frozen=True)
class When:
    """A dimension's condition: the value at `path`, drawn or else the base recipe's, is one of `values`."""

    path: str
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.path} is {' or '.join(map(shown, self.values))}"


@dataclass(frozen=True)
class Believed:
    """What is believed of a field, and why; None means the dimension's own reason."""

    prior: Prior
    reason: str | None = None


NOTHING_BELIEVED = Believed(Uniform())


@dataclass(frozen=True)
class Dimension:
    """One field that varies: its domain, the reason and the source.

    `variant` distinguishes the dimensions of one path that exist under different conditions, such as the rate
    of each optimizer. `beliefs` holds what is believed of the field for all values that may be drawn before
    it.
    """

    path: str
    domain: Domain
    reason: str
    source: str
    when: When | None = None
    variant: str = ""
    beliefs: Table[Believed] = NOTHING_BELIEVED

    @property
    def name(self) -> str:
        """A unique name in a space: the path, or `optimizer.lr[sgd]` if a path has several."""
        return f"{self.path}[{self.variant}]" if self.variant else self.path

    def prior(self, values: Values) -> Prior:
        """Return what is believed of the field after `values` are drawn."""
        return answer(self.beliefs, values).prior

    def reason_for(self, values: Values) -> str:
        """Return the reason for that belief after `values` are drawn."""
        reason = answer(self.beliefs, values).reason
        return self.reason if reason is None else reason


@dataclass(frozen=True)
class RuleValue:
    """The value that a rule gives a field in trials that meet every condition, the reason and the source.

    If a sweep over rates moved the value, `unswept` is the value that the documents name.
    """

    path: str
    value: Value
    reason: str
    source: str
    when: tuple[When, ...] = ()
    unswept: Value = None

    def holds(self, values: Values) -> bool:
        """Return whether a recipe with these values meets every condition."""
        return all(each.path in values and values[each.path] in each.values for each in self.when)


@dataclass(frozen=True)
class Space:
    """What a search may draw: `dimensions` in drawing order, over a settled `base` recipe.

    `own` holds the values of the documented recipe. That is the first trial, which may lie outside a
    domain that a person narrowed. `pins` are the paths that a person fixed in the base; a trial that switches
    a section's kind still has them. `rule_values` are the values that rules give to fields of its trials,
    also to fields that vary.

    Raises SpaceError with every fault: a repeated name, a condition on a value that is drawn later, a prior
    that does not fit its domain, or own values of other dimensions. `spaces.validity` checks, when the space
    is made, that the values it can draw make valid recipes.
    """

    base: Recipe
    dimensions: tuple[Dimension, ...]
    own: Values
    pins: frozenset[str] = frozenset()
    rule_values: tuple[RuleValue, ...] = ()

    def __post_init__(self) -> None:
        for check in (self._order_faults, self._prior_faults, self._own_faults):
            if faults := list(dict.fromkeys(check())):
                raise SpaceError(faults)

    def define(self, draw: Callable[[Dimension, Prior], Value]) -> dict[str, Value]:
        """Return values by path, drawn in order, for the dimensions that exist with the values drawn before.

        `draw` receives each dimension and its prior after those values.
        """
        values: dict[str, Value] = {}
        for dimension in self.dimensions:
            if self._exists(dimension, values):
                values[dimension.path] = draw(dimension, dimension.prior(values))
        return values

    def may_have(self, path: str, value: Value) -> bool:
        """Return whether a recipe of this space may have a value at a path, in its base or by a draw."""
        drawn = any(value in each.domain for each in self.dimensions if each.path == path)
        return drawn or bool(self.base.get(path) == value)

    @property
    def networks_differ(self) -> bool:
        """Whether which network a trial has, or how large it is, is drawn.

        Arguments of a person's own network do not count: nothing is known of what they change.
        """
        return bool(network_fields(each.path for each in self.dimensions) - {"arguments"})

    def decides(self, path: str) -> bool:
        """Return whether the value at a path says which other dimensions exist, or what is believed of
        them."""
        conditions = {each.when.path for each in self.dimensions if each.when is not None}
        return path in conditions or any(path in read_paths(each.beliefs) for each in self.dimensions)

    def sample(self, fraction: Callable[[Dimension], float]) -> dict[str, Value]:
        """Draw values from the priors, by path; `fraction` gives each dimension's quantile, in [0, 1)."""
        return self.define(
            lambda dimension, prior: quantile_value(dimension.domain, prior, fraction(dimension))
        )

    def encode(self, values: Values) -> dict[str, float]:
        """Return each value's position in its domain, in [0, 1], by dimension name,
        for the dimensions that exist.

        Raises SpaceError unless there is one value within its domain for each dimension that exists.
        """
        self._check_paths(values)
        return {each.name: self._fraction(each, values[each.path]) for each in self._active(values)}

    def priors(self, values: Values) -> dict[str, Prior]:
        """Return the prior of each dimension that exists, by name, after the values drawn before it."""
        found: dict[str, Prior] = {}
        before: dict[str, Value] = {}
        for dimension in self._active(values):
            found[dimension.name] = dimension.prior(before)
            before[dimension.path] = values[dimension.path]
        return found

    def recipe(self, values: Values) -> Recipe:
        """Return the base with the values set. Raises RecipeError if the Recipe refuses them."""
        return self.base.with_values(self.set_in_base(values))

    def set_in_base(self, values: Values) -> dict[str, Value]:
        """Return the values, and the pins of sections whose kind they switch: else defaults would apply."""
        switched = {
            path.removesuffix("kind")
            for path, value in values.items()
            if path.endswith(".kind") and value != self._in_base(path)
        }
        carried = {
            pin: self._in_base(pin) for pin in sorted(self.pins) if f"{pin.rpartition('.')[0]}." in switched
        }
        return {**carried, **values}

    def values_by_rule(self, values: Values) -> dict[str, RuleValue]:
        """Return what rules give to the fields of a recipe, by path.
        `values` holds every scalar of that recipe; a field that its kinds lack is left out."""
        return {each.path: each for each in self.rule_values if each.path in values and each.holds(values)}

    def named(self, values: Values) -> dict[str, Value]:
        """Turn values by path into values by dimension name.

        Raises SpaceError unless there is one value for each dimension that exists, and no other.
        """
        self._check_paths(values)
        return {each.name: values[each.path] for each in self._active(values)}

    def _check_paths(self, values: Values) -> None:
        if faults := _unequal(values.keys(), {each.path for each in self._active(values)}):
            raise SpaceError(faults)

    def _fraction(self, dimension: Dimension, value: Value) -> float:
        try:
            return fraction_of(dimension.domain, value)
        except SpaceError as error:
            raise SpaceError([Fault(dimension.name, fault.message) for fault in error.faults]) from None

    def _active(self, values: Values) -> list[Dimension]:
        return [each for each in self.dimensions if self._exists(each, values)]

    def base_meets(self, when: When) -> bool:
        """Return whether a trial that draws nothing at the condition's path meets it by its base."""
        return self._in_base(when.path) in when.values

    def _exists(self, dimension: Dimension, values: Values) -> bool:
        if (when := dimension.when) is None:
            return True
        return values[when.path] in when.values if when.path in values else self.base_meets(when)

    def _in_base(self, path: str) -> Any:
        """Return the base's value. Raises RecipeError if it has none."""
        return self._base_values[path] if path in self._base_values else self.base.get(path)

    @cached_property
    def _base_values(self) -> dict[str, Any]:
        return dict(self.base.leaves())

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

    def _prior_faults(self) -> Iterator[Fault]:
        for dimension in self.dimensions:
            for each in answers(dimension.beliefs):
                try:
                    check_prior(dimension.domain, each.prior)
                except SpaceError as error:
                    yield from (Fault(dimension.name, fault.message) for fault in error.faults)

    def _own_faults(self) -> Iterator[Fault]:
        yield from _unequal(self.own.keys(), {each.path for each in self._active(self.own)})
        for dimension in self._active(self.own):
            if isinstance(dimension.domain, Choice) and self.own.get(dimension.path) not in dimension.domain:
                problem = f"expected {dimension.domain} in the first trial"
                yield Fault(dimension.path, f"{problem}, got {shown(self.own.get(dimension.path))}")


def _unequal(got: Set[str], expected: Set[str]) -> list[Fault]:
    absent = [Fault(name, "expected a value, got none") for name in sorted(expected - got)]
    known = ", ".join(sorted(expected)) or "none"
    surplus = [Fault(name, f"is no dimension here; known: {known}") for name in sorted(got - expected)]
    return absent + surplus


def concentration(space: Space) -> float:
    """Return the number of bits by which the priors narrow the space; 0 if every prior is uniform.

    This is the relative entropy of draws from the priors to uniform draws: 3 bits mean that trials lie as
    close together as if the space were an eighth of its size. A prior may depend on values drawn before it,
    so this is the mean over a few draws, which are the same ones every time.
    """
    return sum(_bits(space, random.Random(draw)) for draw in range(DRAWS)) / DRAWS


@lru_cache(maxsize=1024)
def narrowing(domain: Domain, prior: Prior) -> float:
    """Return the bits by which a prior narrows its domain:
    about 1 for a range with high confidence, 0.2 with medium."""
    match prior:
        case Uniform():
            return 0.0
        case Weights(shares=shares):
            return sum(share * math.log2(len(shares) * share) for share in shares)
        case Normal():
            values = [quantile_value(domain, prior, (point + 0.5) / POINTS) for point in range(POINTS)]
            return sum(math.log2(density(domain, prior, value)) for value in values) / POINTS
        case _:
            assert_never(prior)


def _bits(space: Space, rng: random.Random) -> float:
    """Return the sum of the bits of the dimensions that one trial has."""
    bits = 0.0

    def draw(dimension: Dimension, prior: Prior) -> Value:
        nonlocal bits
        bits += narrowing(dimension.domain, prior)
        return quantile_value(dimension.domain, prior, rng.random())

    space.define(draw)
    return bits
