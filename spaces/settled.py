"""Writes a space as plain data.
A search writes it once and reads it afterwards, so later rules cannot change it.

Domains are written as in a study's overrides, such as `{"log": [0.01, 1.0]}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, assert_never

from spaces.domains import Choice, Domain, Float, Integer, SpaceError, Value, domain_tree, is_number
from spaces.forms import types_of
from spaces.priors import SPREADS, Confidence, Normal, Prior, Uniform, Weights
from spaces.space import Believed, Dimension, RuleValue, Space, When
from spaces.tables import ByValue, Case, Table
from trainable.errors import Fault, RecipeError
from trainable.recipe import Recipe
from trainable.recipe.trees import NotPlain, as_json

T = TypeVar("T")


def tree_of(space: Space) -> dict[str, Any]:
    """Return the space as plain data, ready for JSON; `space_from` reads an equal space from it."""
    return {
        "base": space.base.tree(),
        "pins": sorted(space.pins),
        "dimensions": [_dimension_tree(each) for each in space.dimensions],
        "own": dict(space.own),
        "rule_values": [asdict(each) for each in space.rule_values],
    }


def space_from(tree: Any, where: str = "") -> Space:
    """Read a space from plain data that `tree_of` wrote, and ask no rule.

    Raises SpaceError for anything else, with the path of the first fault; `where` names the source.
    """
    try:
        as_json(tree)  # nothing in it is too large or too deep for what follows
        return _space(_Branch(tree))
    except NotPlain as error:
        raise SpaceError([Fault(error.path, str(error))], where) from None
    except SpaceError as error:
        raise SpaceError(error.faults, where) from None


# --- to plain data ------------------------------------------------------------------------------------


def _dimension_tree(dimension: Dimension) -> dict[str, Any]:
    return {
        "path": dimension.path,
        "variant": dimension.variant,
        "domain": domain_tree(dimension.domain),
        "when": None if dimension.when is None else asdict(dimension.when),
        "reason": dimension.reason,
        "source": dimension.source,
        "beliefs": _beliefs_tree(dimension.beliefs),
    }


def _beliefs_tree(beliefs: Table[Believed]) -> dict[str, Any]:
    if not isinstance(beliefs, ByValue):
        return {"prior": _prior_tree(beliefs.prior), "reason": beliefs.reason}
    cases = [{"values": list(each.values), "then": _beliefs_tree(each.then)} for each in beliefs.cases]
    return {"path": beliefs.path, "default": beliefs.default, "cases": cases}


def _prior_tree(prior: Prior) -> dict[str, Any]:
    match prior:
        case Uniform():
            return {}
        case Normal(centre=centre, confidence=confidence):
            return {"centre": centre, "confidence": confidence}
        case Weights(weights=weights):
            return {"weights": list(weights)}
        case _:
            assert_never(prior)


# --- from plain data ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Branch:
    """A part of a tree, and its dotted path in it."""

    content: Any
    path: str = ""

    def fields(self, *names: str) -> list[_Branch]:
        """Return the parts with these names. Raises SpaceError unless these are the names of all parts."""
        found = self.entries()
        if found.keys() != set(names):
            raise self.expected(f"the fields {', '.join(names)}", f"{', '.join(found) or 'none'}")
        return [found[name] for name in names]

    def entries(self) -> dict[str, _Branch]:
        if not isinstance(self.content, Mapping):
            raise self.expected("a mapping")
        return {str(name): self._part(name, each) for name, each in self.content.items()}

    def items(self) -> tuple[_Branch, ...]:
        if not isinstance(self.content, list | tuple):
            raise self.expected("a list")
        return tuple(self._part(number, each) for number, each in enumerate(self.content))

    def text(self) -> str:
        if not isinstance(self.content, str):
            raise self.expected("a text")
        return self.content

    def number(self) -> float:
        if not is_number(self.content):
            raise self.expected("a number")
        return self.content

    def value(self) -> Value:
        (found,) = self.built(lambda: Choice((self.content,))).options  # one option: checked to be a scalar
        return found

    def values(self) -> tuple[Value, ...]:
        return tuple(each.value() for each in self.items())

    def built(self, make: Callable[[], T]) -> T:
        """Return what `make` makes. Raises SpaceError with its faults,
        their paths extended by this part's path."""
        try:
            return make()
        except (SpaceError, RecipeError) as error:
            raise SpaceError(
                [Fault(_joined(self.path, each.path), each.message) for each in error.faults]
            ) from None

    def expected(self, what: str, got: str | None = None) -> SpaceError:
        return SpaceError.at(self.path, f"expected {what}, got {got or repr(self.content)}")

    def _part(self, name: object, content: Any) -> _Branch:
        return _Branch(content, _joined(self.path, str(name)))


def _joined(path: str, name: str) -> str:
    return ".".join(filter(None, (path, name)))


def _space(branch: _Branch) -> Space:
    base, pins, dimensions, own, rule_values = branch.fields(
        "base", "pins", "dimensions", "own", "rule_values"
    )
    return Space(
        base.built(lambda: Recipe.from_tree({name: each.content for name, each in base.entries().items()})),
        tuple(map(_dimension, dimensions.items())),
        {path: each.value() for path, each in own.entries().items()},
        frozenset(each.text() for each in pins.items()),
        tuple(map(_rule_value, rule_values.items())),
    )


def _dimension(branch: _Branch) -> Dimension:
    path, variant, domain, when, reason, source, beliefs = branch.fields(
        "path", "variant", "domain", "when", "reason", "source", "beliefs"
    )
    return Dimension(
        path.text(),
        _domain(domain),
        reason.text(),
        source.text(),
        None if when.content is None else _when(when),
        variant.text(),
        _beliefs(beliefs),
    )


def _rule_value(branch: _Branch) -> RuleValue:
    path, value, reason, source, when, unswept = branch.fields(
        "path", "value", "reason", "source", "when", "unswept"
    )
    if not types_of(path.text()):
        raise path.expected("a field of a recipe")
    conditions = tuple(map(_when, when.items()))
    return RuleValue(path.text(), value.value(), reason.text(), source.text(), conditions, unswept.value())


def _when(branch: _Branch) -> When:
    path, values = branch.fields("path", "values")
    return When(path.text(), values.values())


def _domain(branch: _Branch) -> Domain:
    match [*branch.entries().items()]:
        case [("choice", options)]:
            return options.built(lambda: Choice(tuple(each.content for each in options.items())))
        case [("uniform" | "log" as form, ends)]:
            low, high = _ends(ends)
            return ends.built(lambda: Float(low, high, form == "log"))
        case [("int" | "int_log" as form, ends)]:
            low, high = _ends(ends)
            return ends.built(lambda: Integer(low, high, form == "int_log"))
        case _:
            raise branch.expected("one of uniform, log, int, int_log and choice")


def _ends(branch: _Branch) -> tuple[Any, Any]:
    """Return two numbers, which the domain itself checks."""
    match branch.items():
        case (low, high):
            return low.content, high.content
        case _:
            raise branch.expected("[low, high]")


def _beliefs(branch: _Branch) -> Table[Believed]:
    if "cases" not in branch.entries():
        reason, prior = branch.fields("reason", "prior")
        return Believed(_prior(prior), None if reason.content is None else reason.text())
    path, default, cases = branch.fields("path", "default", "cases")
    branches = (case.fields("values", "then") for case in cases.items())
    return ByValue(
        path.text(),
        default.value(),
        tuple(Case(values.values(), _beliefs(then)) for values, then in branches),
    )


def _prior(branch: _Branch) -> Prior:
    match branch.entries():
        case {"centre": _}:
            centre, confidence = branch.fields("centre", "confidence")
            return Normal(centre.number(), _confidence(confidence))
        case {"weights": weights}:
            branch.fields("weights")
            return weights.built(lambda: Weights(tuple(each.content for each in weights.items())))
        case _:
            branch.fields()
            return Uniform()


def _confidence(branch: _Branch) -> Confidence:
    for known in SPREADS:
        if branch.content == known:
            return known
    raise branch.expected(f"one of {', '.join(SPREADS)}")
