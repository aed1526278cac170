"""Changes of a study that an audit proposes: ranges grown or cut, and what would mend the best recipe
(`trainable.curves.remedies`) as beliefs, unless the study, its trials or the documents' rules object.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Literal, NamedTuple, assert_never

from search.learning.evidence import Evidence, LeftAlone, ProposedEdit, overridden
from search.learning.standings import by_luck
from search.study import Study
from spaces.catalog.overrides import FORMS
from spaces.conditions import scalars_of
from spaces.domains import (
    Choice,
    Domain,
    Float,
    Integer,
    SpaceError,
    Value,
    Values,
    domain_tree,
    is_number,
    shown,
)
from spaces.priors import Normal, Uniform, Weights, believed, density
from spaces.rules.heuristics import kinds_and_batch
from spaces.rules.rules import Rule, rule_against
from spaces.rules.rulings import Distribution
from spaces.space import Dimension
from trainable.curves.task_curves import Remedy
from trainable.recipe import Recipe

RangeEnd = Literal["lower", "upper"]
NumberRange = Float | Integer
GROWN_PARTS = (1.0, 0.5, 0.25, 0.125)  # parts of the largest growth of a range, which are tried in this order
# a range grows by half its length at one end; on a logarithmic scale by this factor at most; our choice
GROWTH = 10.0
# the trials speak against a change if they are better without it, with a probability below this; our choice
AGAINST = 0.05


def wider(domain: NumberRange, end: RangeEnd) -> list[NumberRange]:
    """Return the range grown at one end, the most first, with three significant digits."""
    grown = [_grown(domain, end, part) for part in GROWN_PARTS]
    return [each for each in dict.fromkeys(grown) if each is not None]


def reaching(domain: NumberRange, value: float) -> NumberRange | None:
    """Return the range grown as far as a value beyond one of its ends; None where no such range can be."""
    near = three_digits(value)  # a belief in it is written so
    low, high = min(value, near, domain.low), max(value, near, domain.high)
    try:
        if isinstance(domain, Integer):
            return Integer(math.floor(low), math.ceil(high), domain.log)
        return Float(low, high, domain.log)
    except SpaceError:  # a logarithm needs more than 0
        return None


def below(domain: Float, top: float) -> Float:
    """Return the part of a range up to a value that lies in it, and above its lower end."""
    return Float(domain.low, min(three_digits(top, up=True), domain.high), domain.log)


def written(domain: Domain, believed: Value) -> dict[str, Any]:
    """Return a domain as a study writes it, with a belief in the value where it lies within."""
    value = three_digits(believed) if isinstance(believed, float) else believed
    return {**domain_tree(domain), **(belief(value) if value in domain else {})}


def belief(value: Value) -> dict[str, Any]:
    """Return what a study writes for a value that is expected."""
    return {"prior": value, "confidence": "medium"}


def three_digits(value: float, *, up: bool = False) -> float:
    """Return a number with three significant digits; with `up` it is not below the value."""
    near = float(f"{value:.3g}")
    if not up or near >= value:
        return near
    return float(f"{near + 10.0 ** (math.floor(math.log10(value)) - 2):.3g}")


def _grown(domain: NumberRange, end: RangeEnd, part: float) -> NumberRange | None:
    low, high = _ends(domain, end, part)
    grown: NumberRange
    try:
        match domain:
            case Float():
                low, high = three_digits(low), three_digits(high)
                grown = Float(min(low, domain.low), max(high, domain.high), domain.log)
            case Integer():
                grown = Integer(math.floor(low), math.ceil(high), domain.log)
            case _:
                assert_never(domain)
    except SpaceError:  # a logarithm needs more than 0
        return None
    return grown if grown.low < domain.low or grown.high > domain.high else None


def _ends(domain: NumberRange, end: RangeEnd, part: float) -> tuple[float, float]:
    low, high = float(domain.low), float(domain.high)
    if domain.log:
        factor = min(GROWTH, math.sqrt(high / low)) ** part
        return (low / factor, high) if end == "lower" else (low, high * factor)
    step = part * (high - low) / 2.0
    return (low - step, high) if end == "lower" else (low, high + step)


class Shifts(NamedTuple):
    """The proposals and what is left alone, from a recipe's changes."""

    proposed_edits: tuple[ProposedEdit, ...]
    left_alone: tuple[LeftAlone, ...]


def shifts(evidence: Evidence, changes: Sequence[Remedy], changed: Set[str]) -> Shifts:
    """Turn changes of the best trial's recipe into expectations of the next search, never fixed values.

    Left alone are fields that the study pins, fields that are `changed` already, values that this search
    expected as much, values that neither its space nor the field's rule offers, and changes that its trials
    speak against.
    """
    answers = [_shift(evidence, change, changed) for change in changes]
    return Shifts(
        tuple(each for each in answers if isinstance(each, ProposedEdit)),
        tuple(each for each in answers if isinstance(each, LeftAlone)),
    )


def _shift(evidence: Evidence, change: Remedy, changed: Set[str]) -> ProposedEdit | LeftAlone:
    dimension = _dimension(evidence, change.path)
    options = dimension.domain if dimension is not None and isinstance(dimension.domain, Choice) else None
    if options is not None and change.to == 0.0 and change.to not in options and None in options:
        change = replace(change, to=None)  # a field may be switched off by 0 or by null
    name = dimension.name if dimension is not None else change.path
    considered = f"{shown(change.now)} -> {shown(change.to)} ({change.why}) was considered"
    # a variant may be fixed, too, as in `optimizer.lr[sgd]: {fixed: 0.1}`
    if change.path in evidence.space.pins or (options is not None and len(options.options) == 1):
        return LeftAlone(name, f"{considered}, but the study fixes it")
    if overridden(name) in changed:
        return LeftAlone(name, f"{considered}, but it is changed for another reason")
    if dimension is not None and _is_expected(evidence, dimension, change):
        return LeftAlone(name, f"{considered}, but this search expected it already")
    if (why := _left_out(evidence, dimension, change)) is not None:
        return LeftAlone(name, f"{considered}, but {why}")
    if dimension is not None and (chance := _chance_against(evidence, dimension, change)) < AGAINST:
        return LeftAlone(name, f"{considered}, but trials are better the other way round: {by_luck(chance)}")
    return ProposedEdit(
        overridden(name), _forms(evidence.search.study, dimension, change), f"{change.why} ({change.source})"
    )


def _dimension(evidence: Evidence, path: str) -> Dimension | None:
    """Return the dimension that gave the best trial its value; None for a field that did not vary there."""
    best = evidence.summary.best
    names = evidence.space.named(best.values) if best is not None else {}
    return next(
        (each for each in evidence.space.dimensions if each.path == path and each.name in names), None
    )


def _left_out(evidence: Evidence, dimension: Dimension | None, change: Remedy) -> str | None:
    """Return why the field's rule leaves out a value that the searched space does not offer either."""
    best = evidence.summary.best
    if best is None or (dimension is not None and change.to in dimension.domain):
        return None
    return objection(evidence, change, best.whole_recipe)


def _is_expected(evidence: Evidence, dimension: Dimension, change: Remedy) -> bool:
    """Say whether the space believes as much already, beside the best trial's other values; beside the
    documented ones, if that is no point of the space."""
    best = evidence.summary.best
    if best is None or change.to not in dimension.domain:
        return False
    is_outside = best.first is not None and best.first.outside
    prior = dimension.prior(evidence.space.own if is_outside else best.values)
    match prior:
        case Normal(centre=centre):
            return bool(centre >= change.to if change.to > change.now else centre <= change.to)
        case Uniform() | Weights():
            believing = believed(dimension.domain, change.to)
            return density(dimension.domain, prior, change.to) >= density(
                dimension.domain, believing, change.to
            )
        case _:
            assert_never(prior)


def _chance_against(evidence: Evidence, dimension: Dimension, change: Remedy) -> float:
    """Return how likely trials would be so much better without the change, if the dimension did nothing."""
    if isinstance(dimension.domain, Choice):
        offered = change.to in dimension.domain
        return 1.0 - evidence.trends.chance_with(dimension, change.to) if offered else 1.0
    above = evidence.trends.chance_above(dimension)
    return 1.0 - above if change.to > change.now else above


def _forms(study: Study, dimension: Dimension | None, change: Remedy) -> tuple[Mapping[str, Any], ...]:
    """Return the forms in which a study may write the expected value: in the present range or a grown one.

    A field that never varied, and has no range from a rule, is tried in half of the trials: nothing supports
    more.
    """
    to: Value = change.to
    if dimension is None:
        return belief(to), domain_tree(Choice((change.now, to)))
    domain = dimension.domain
    if to in domain:
        return (written(domain, to),) if _is_written(study, dimension) else (belief(to), written(domain, to))
    if isinstance(domain, Choice):
        return (written(Choice((*domain.options, to)), to),)
    assert is_number(to)
    grown = wider(domain, "upper" if to > domain.high else "lower")
    return tuple(written(each, to) for each in reversed(grown) if to in each)


def _is_written(study: Study, dimension: Dimension) -> bool:
    """Say whether the study itself gives the dimension's range: a belief alone would remove that range."""
    overrides = study.space.overrides
    standings = (overrides.get(name) for name in (dimension.name, dimension.path))
    return any(isinstance(each, Mapping) and each.keys() & set(FORMS) for each in standings)


def objection(evidence: Evidence, change: Remedy, recipe: Recipe) -> str | None:
    """Return why a field's rules leave a value out for these facts; None where none does."""
    if (against := rule_against(change.path, change.to, evidence.search.facts, recipe)) is None:
        return None
    return f"the rule leaves it out: {_why(evidence, *against, scalars_of(recipe))}"


def _why(evidence: Evidence, rule: Rule, found: Distribution | None, values: Values) -> str:
    summary = rule.words.summary.rstrip(".")
    if found is not None:
        return f"{found.domain}. {summary} ({found.source})"
    if rule.words.silent is not None:
        return f"the rule gives no range {rule.words.silent}"
    if ruling := kinds_and_batch(evidence.search.facts).get(rule.path):
        return f"{ruling.reason} ({ruling.source})"
    return summary
