"""Turns rules, and what a person wrote over them, into the dimensions of a space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple, TypeVar

from spaces.catalog.overrides import PLACE, Belief, Varying, path_of
from spaces.catalog.rangeless import rangeless
from spaces.conditions import check_had, domains_of, has, kind_of, options_of, settled_values, value_of
from spaces.domains import Choice, Domain, SpaceError, Value, shown
from spaces.facts import Facts
from spaces.forms import form_like
from spaces.priors import believed, within
from spaces.rules.rules import Rule
from spaces.space import Believed, Dimension, Values, When
from spaces.tables import answer, written_out
from trainable.errors import Fault, RecipeError
from trainable.recipe import Recipe

T = TypeVar("T")
Named = dict[str, Dimension]
"""Named maps the name of each rule, or the name that a person wrote, to a dimension, in drawing order."""


class Placed(NamedTuple):
    """Holds a dimension of a space and the rule of its beliefs, or None if a person wrote the beliefs."""

    dimension: Dimension
    rule: Rule | None


def make_dimensions(
    rules: Sequence[Rule],
    offered: Callable[[Rule], bool],
    facts: Facts,
    own: Recipe,
    pins: Set[str],
    written: Mapping[str, Varying],
) -> list[Placed]:
    """Returns the dimensions that some trial around `own` can have, in the rules' order.

    A rule applies if it is `offered`, or if a person wrote an override of its field. An override replaces the
    rule's range, or the prior within that range. Raises SpaceError with every fault of the overrides.
    """
    settled = settled_values(own)
    asked = [rule for rule in rules if offered(rule) or written.keys() & {rule.name, rule.path}]
    speaking = {
        rule.name: (rule, dimension)
        for rule in asked
        if rule.path not in pins and (dimension := dimension_of(rule, facts, settled)) is not None
    }
    spoken = {name: dimension for name, (_, dimension) in speaking.items()}
    known = {rule.name: rule for rule in rules}
    ranged = {name: each for name, each in written.items() if each.domain is not None}
    met = reachable(_ranged(spoken, ranged, known, own), own)
    _check_met(ranged.keys(), met, known)
    beliefs = {name: each for name, each in written.items() if each.domain is None}
    moved = _each(beliefs, lambda name, each: _believed(name, each, met, spoken, rules, own))
    placed = {**met, **{name: each for part in moved.values() for name, each in part.items()}}
    return [
        Placed(each, speaking[name][0] if name in spoken and each.beliefs is spoken[name].beliefs else None)
        for name, each in placed.items()
    ]


def with_beliefs(placed: Sequence[Placed], facts: Facts, own: Recipe) -> tuple[Dimension, ...]:
    """Returns the dimensions with their rules' beliefs for all values that may be drawn before each.

    Raises SpaceError if a belief depends on a real number.
    """
    settled = settled_values(own)
    dimensions = [each for each, _ in placed]
    return tuple(
        dimension
        if rule is None
        else _written_out(dimension, rule, facts, settled, domains_of(dimensions[:number]))
        for number, (dimension, rule) in enumerate(placed)
    )


def _written_out(
    dimension: Dimension,
    rule: Rule,
    facts: Facts,
    settled: Values,
    before: Mapping[str, Sequence[Domain]],
) -> Dimension:
    """Returns the dimension with the rule's beliefs for all values drawn before;
    its domain does not change."""
    first = answer(dimension.beliefs, settled)

    def believed_of(values: Values) -> Believed:
        found = rule.of(facts, values)
        if found is None or (isinstance(found.domain, Choice) and found.domain != dimension.domain):
            return first  # the weights would be those of other options
        reason = found.reason if found.reason != dimension.reason else None
        return Believed(within(dimension.domain, found.prior), reason)

    return replace(dimension, beliefs=written_out(believed_of, settled, before))


def _each(written: Mapping[str, Varying], place: Callable[[str, Varying], T]) -> dict[str, T]:
    """Applies a function to all overrides, by name. Raises SpaceError with all their faults at once."""
    found: dict[str, T] = {}
    faults: list[Fault] = []
    for name, each in written.items():
        try:
            found[name] = place(name, each)
        except (SpaceError, RecipeError) as error:
            faults += error.faults
    if faults:
        raise SpaceError(faults)
    return found


def dimension_of(rule: Rule, facts: Facts, settled: Values) -> Dimension | None:
    """Returns the dimension that a rule gives for these facts, with its belief for the settled values.

    Returns None if the rule is silent.
    """
    found = rule.of(facts, settled)
    if found is None:
        return None
    belief = Believed(within(found.domain, found.prior))
    return Dimension(rule.path, found.domain, found.reason, found.source, rule.when, rule.variant, belief)


def reachable(dimensions: Named, own: Recipe) -> Named:
    """Returns the dimensions that some trial can have;
    a condition that always holds is dropped, with its variant."""
    options = options_of(dimensions.values())
    kept: Named = {}
    for name, dimension in dimensions.items():
        if (when := dimension.when) is None:
            kept[name] = dimension
            continue
        possible = options.get(when.path, (value_of(own, when.path),))
        met = tuple(value for value in possible if value in when.values)
        if len(met) == len(possible):
            kept[name] = replace(dimension, when=None, variant="")
        elif met:
            kept[name] = replace(dimension, when=When(when.path, met))
    return kept


# --- ranges that a person wrote -----------------------------------------------------------------------


def _ranged(spoken: Named, ranged: Mapping[str, Varying], known: Mapping[str, Rule], own: Recipe) -> Named:
    """Returns the dimensions with the written ranges. A written path replaces all its variants, at the first
    one's position; a written variant replaces itself alone.

    Fields without a rule come last, but kinds come first, since other dimensions may depend on them.
    """
    options = options_of(spoken.values()) | {
        name: each.domain.options for name, each in ranged.items() if isinstance(each.domain, Choice)
    }
    made = _each(ranged, lambda name, each: _written(name, each, known, options, own))
    places = [name if name in made else path_of(name) if path_of(name) in made else name for name in spoken]
    added = [name for name in made if name not in places]
    order = [name for name in added if name.endswith(".kind")] + places
    order += [name for name in added if not name.endswith(".kind")]
    return {name: made[name] if name in made else spoken[name] for name in dict.fromkeys(order)}


def _written(
    name: str,
    written: Varying,
    known: Mapping[str, Rule],
    options: Mapping[str, tuple[Value, ...]],
    own: Recipe,
) -> Dimension:
    assert written.domain is not None
    belief, path = Believed(written.prior_in(written.domain)), path_of(name)
    if name == path:
        when, variant = _condition(path, options, own), ""
    else:
        when, variant = known[name].when, known[name].variant
    return Dimension(path, written.domain, "written in the study", PLACE, when, variant, belief)


def _condition(path: str, options: Mapping[str, tuple[Value, ...]], own: Recipe) -> When | None:
    """Returns None for a field that every offered kind of its section has;
    else a condition on the kinds that have it.

    Raises SpaceError, naming the kinds that have it, if none of them is offered.
    """
    kind = kind_of(path)
    check_had(path, options, own)
    if kind == path or kind not in options:
        return None
    having = tuple(option for option in options[kind] if has(own, path, {kind: option}))
    return None if having == options[kind] else When(kind, having)


def _check_met(names: Set[str], met: Named, known: Mapping[str, Rule]) -> None:
    """Raises SpaceError for a written variant that no trial has, since it would change nothing."""
    unmet = [name for name in names if name not in met]
    if unmet:
        told = "which no trial of this space has"
        raise SpaceError([Fault(name, f"exists when {known[name].when}, {told}") for name in unmet])


# --- what a person believes ---------------------------------------------------------------------------


def _believed(
    name: str, written: Varying, met: Named, spoken: Named, rules: Sequence[Rule], own: Recipe
) -> Named:
    """Returns the dimensions of a name, or of all variants of a path,
    that a believed value fits, with that belief.

    If no value is written, they are the rules' own. Raises SpaceError if the value fits none, with the range
    of each.
    """
    meant = {each: met[each] for each in met if name in (each, path_of(each))}
    if not meant:
        raise SpaceError([rangeless(name, written.prior, met.values(), spoken.values(), rules, own)])
    if written.prior is None:
        return meant
    assert isinstance(written.prior, Belief)  # weights stand beside options only
    value = written.prior.value
    fitting = {each: dimension for each, dimension in meant.items() if value in dimension.domain}
    if not fitting:
        told = "; ".join(f"{each}: {dimension.domain}" for each, dimension in meant.items())
        ranges = told if len(meant) > 1 else str(*(dimension.domain for dimension in meant.values()))
        advice = _wider(value, meant.values(), own)
        raise SpaceError([Fault(name, f"expected a prior within {ranges}; got {shown(value)}{advice}")])
    return {
        each: replace(
            dimension,
            reason=f"believed in the study; the rule: {dimension.reason}",
            source=f"{PLACE}; the range: {dimension.source}",
            beliefs=Believed(believed(dimension.domain, value, written.prior.confidence)),
        )
        for each, dimension in fitting.items()
    }


def _wider(value: Value, meant: Iterable[Dimension], own: Recipe) -> str:
    """Says how to write a range that contains a believed value; empty for a value that no recipe accepts."""
    for each in meant:
        condition = {each.when.path: each.when.values[0]} if each.when else {}
        try:
            own.with_values({**condition, each.path: value})
        except RecipeError:
            continue
        form = form_like(each.domain)
        return f"; a range of your own may hold it: {{{form}, prior: {shown(value)}}}"
    return ""
