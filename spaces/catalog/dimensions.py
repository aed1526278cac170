"""Turns rules, and what a person wrote over them, into the dimensions of a space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple, TypeVar

from spaces.catalog.overrides import OVERRIDES, Varying, WrittenPrior, path_of
from spaces.conditions import check_had, domains_of, has, kind_of, options_of, scalars_of, value_of
from spaces.domains import Choice, Domain, SpaceError, Value, Values, hull, shown
from spaces.facts import Facts
from spaces.forms import allowed, form_like, forms
from spaces.priors import Weights, believed, clamped
from spaces.rules.rules import Rule
from spaces.space import Believed, Dimension, When
from spaces.tables import answer, written_out
from trainable.errors import Fault, RecipeError
from trainable.recipe import Recipe
from trainable.recipe.models import MODEL_NAME

T = TypeVar("T")
ByName = dict[str, Dimension]  # by the name of each rule, or the name that a person wrote, in drawing order


class RuledDimension(NamedTuple):
    """A dimension of a space, and the rule of its beliefs; None where a person wrote the beliefs."""

    dimension: Dimension
    rule: Rule | None


def make_dimensions(
    rules: Sequence[Rule],
    offered: Callable[[Rule], bool],
    facts: Facts,
    own: Recipe,
    pins: Set[str],
    written: Mapping[str, Varying],
) -> list[RuledDimension]:
    """Return the dimensions that some trial around `own` can have, in the rules' order.

    A rule applies if it is `offered`, or if a person wrote an override of its field. An override replaces the
    rule's range, or the prior within that range. Raises SpaceError with every fault of the overrides.
    """
    own_values = scalars_of(own)
    asked = [rule for rule in rules if offered(rule) or written.keys() & {rule.name, rule.path}]
    answering = {
        rule.name: (rule, dimension)
        for rule in asked
        if rule.path not in pins and (dimension := dimension_of(rule, facts, own_values)) is not None
    }
    by_rule = {name: dimension for name, (_, dimension) in answering.items()}
    known = {rule.name: rule for rule in rules}
    with_range = {name: each for name, each in written.items() if each.domain is not None}
    present = reachable(_ranged(by_rule, with_range, known, own), own)
    if unmet := [name for name in with_range if name not in present]:  # it would change nothing
        lacking = "which no trial of this space has"
        raise SpaceError([Fault(name, f"exists when {known[name].when}, {lacking}") for name in unmet])
    beliefs = {name: each for name, each in written.items() if each.domain is None}
    believed_by_name = _for_each(
        beliefs, lambda name, each: _believed(name, each, present, by_rule, rules, own)
    )
    ruled = {**present, **{name: each for part in believed_by_name.values() for name, each in part.items()}}
    believing = {
        name: rule
        for name, (rule, dimension) in answering.items()
        if name in ruled and ruled[name].beliefs is dimension.beliefs
    }
    return [RuledDimension(each, believing.get(name)) for name, each in ruled.items()]


def with_beliefs(ruled: Sequence[RuledDimension], facts: Facts, own: Recipe) -> tuple[Dimension, ...]:
    """Return the dimensions with their rules' beliefs for all values that may be drawn before each.

    Raises SpaceError if a belief depends on a real number.
    """
    own_values = scalars_of(own)
    dimensions = [each for each, _ in ruled]
    return tuple(
        dimension
        if rule is None
        else _written_out(dimension, rule, facts, own_values, domains_of(dimensions[:number]))
        for number, (dimension, rule) in enumerate(ruled)
    )


def _written_out(
    dimension: Dimension,
    rule: Rule,
    facts: Facts,
    own_values: Values,
    before: Mapping[str, Sequence[Domain]],
) -> Dimension:
    """Return the dimension with the rule's beliefs for all values drawn before;
    its domain does not change."""
    first = answer(dimension.beliefs, own_values)

    def believed_of(values: Values) -> Believed:
        found = rule.of(facts.of_network(values.get(MODEL_NAME)), values)
        if found is None or (isinstance(found.domain, Choice) and found.domain != dimension.domain):
            return first  # the weights would be those of other options
        reason = found.reason if found.reason != dimension.reason else None
        return Believed(clamped(dimension.domain, found.prior), reason)

    return replace(dimension, beliefs=written_out(believed_of, own_values, before))


def _for_each(written: Mapping[str, Varying], make: Callable[[str, Varying], T]) -> dict[str, T]:
    """Apply a function to all overrides, by name. Raises SpaceError with all their faults at once."""
    found: dict[str, T] = {}
    faults: list[Fault] = []
    for name, each in written.items():
        try:
            found[name] = make(name, each)
        except (SpaceError, RecipeError) as error:
            faults += error.faults
    if faults:
        raise SpaceError(faults)
    return found


def dimension_of(rule: Rule, facts: Facts, own_values: Values) -> Dimension | None:
    """Return the dimension that a rule gives for these facts, with its belief for the settled values. Where
    trials choose between networks, its range holds those of all.

    Return None if the rule is silent for each of them.
    """
    networks = (facts, *(facts.of_network(each.name) for each in facts.networks))
    answered = [found for each in networks if (found := rule.of(each, own_values)) is not None]
    if not answered:
        return None
    first, domain = answered[0], hull([each.domain for each in answered])
    belief = Believed(clamped(domain, first.prior))
    return Dimension(rule.path, domain, first.reason, first.source, rule.when, rule.variant, belief)


def reachable(dimensions: ByName, own: Recipe) -> ByName:
    """Return the dimensions that some trial can have;
    a condition that always holds is dropped, with its variant."""
    options = options_of(dimensions.values())
    found: ByName = {}
    for name, dimension in dimensions.items():
        if (when := dimension.when) is None:
            found[name] = dimension
            continue
        possible = options.get(when.path, (value_of(own, when.path),))
        present = tuple(value for value in possible if value in when.values)
        if len(present) == len(possible):
            found[name] = replace(dimension, when=None, variant="")
        elif present:
            found[name] = replace(dimension, when=When(when.path, present))
    return found


# --- ranges that a person wrote -----------------------------------------------------------------------


def _ranged(
    by_rule: ByName, with_range: Mapping[str, Varying], known: Mapping[str, Rule], own: Recipe
) -> ByName:
    """Return the dimensions with the written ranges. A written path replaces all its variants, at the first
    one's position; a written variant replaces itself alone.

    Fields without a rule come last, but kinds and the network first: other dimensions may depend on them.
    """
    options = options_of(by_rule.values()) | {
        name: each.domain.options for name, each in with_range.items() if isinstance(each.domain, Choice)
    }
    ranges = _for_each(with_range, lambda name, each: _written(name, each, known, options, own))
    names = [
        name if name in ranges else path_of(name) if path_of(name) in ranges else name for name in by_rule
    ]
    added = [name for name in ranges if name not in names]
    order = [*filter(_leads, added), *names, *(name for name in added if not _leads(name))]
    return {name: ranges[name] if name in ranges else by_rule[name] for name in dict.fromkeys(order)}


def _leads(name: str) -> bool:
    return name.endswith(".kind") or name == MODEL_NAME


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
    return Dimension(path, written.domain, "written in the study", OVERRIDES, when, variant, belief)


def _condition(path: str, options: Mapping[str, tuple[Value, ...]], own: Recipe) -> When | None:
    """Return None for a field that every offered kind of its section has;
    else a condition on the kinds that have it.

    Raises SpaceError, naming the kinds that have it, if none of them is offered.
    """
    kind = kind_of(path)
    check_had(path, options, own)
    if kind == path or kind not in options:
        return None
    having = tuple(option for option in options[kind] if has(own, path, {kind: option}))
    return None if having == options[kind] else When(kind, having)


# --- what a person believes ---------------------------------------------------------------------------


def _believed(
    name: str, written: Varying, present: ByName, by_rule: ByName, rules: Sequence[Rule], own: Recipe
) -> ByName:
    """Return the dimensions of a name, or of all variants of a path,
    that a believed value fits, with that belief.

    If no value is written, they are the rules' own. Raises SpaceError if the value fits none, with the range
    of each.
    """
    matching = {each: present[each] for each in present if name in (each, path_of(each))}
    if not matching:
        raise SpaceError(
            [_missing_range(name, written.prior, present.values(), by_rule.values(), rules, own)]
        )
    if written.prior is None:
        return matching
    assert isinstance(written.prior, WrittenPrior)  # weights stand beside options only
    value = written.prior.value
    fitting = {each: dimension for each, dimension in matching.items() if value in dimension.domain}
    if not fitting:
        named = len(matching) > 1
        domains = [
            f"{each}: {dimension.domain}" if named else str(dimension.domain)
            for each, dimension in matching.items()
        ]
        advice = _wider(value, matching.values(), own)
        raise SpaceError.at(name, f"expected a prior within {'; '.join(domains)}; got {shown(value)}{advice}")
    return {
        each: replace(
            dimension,
            reason=f"believed in the study; the rule: {dimension.reason}",
            source=f"{OVERRIDES}; the range: {dimension.source}",
            beliefs=Believed(believed(dimension.domain, value, written.prior.confidence)),
        )
        for each, dimension in fitting.items()
    }


def _wider(value: Value, matching: Iterable[Dimension], own: Recipe) -> str:
    """Say how to write a range that contains a believed value; empty for a value that no recipe accepts."""
    for each in matching:
        condition = {each.when.path: each.when.values[0]} if each.when else {}
        try:
            own.with_values({**condition, each.path: value})
        except RecipeError:
            continue
        form = form_like(each.domain)
        return f"; a range of your own may hold it: {{{form}, prior: {shown(value)}}}"
    return ""


# --- what has no range ---------------------------------------------------------------------------------


def _missing_range(
    name: str,
    prior: WrittenPrior | Weights | None,
    reachable: Iterable[Dimension],
    by_rule: Iterable[Dimension],
    rules: Sequence[Rule],
    own: Recipe,
) -> Fault:
    """Return the fault of an override that writes a prior, or ask for the rule, of a field without a range.

    `by_rule` are all dimensions that rules gave, `reachable` those that some trial has. Raises SpaceError for
    a field that no trial has.
    """
    unmet = [each for each in by_rule if name in (each.name, each.path)]
    if unmet:
        conditions = " or ".join(str(each.when) for each in unmet)
        return Fault(name, f"exists when {conditions}, which no trial of this space has")
    path = path_of(name)
    check_had(path, options_of(reachable), own)
    return Fault(name, f"{_why_no_range(path, rules)}; {_what_to_write(path, prior)}")


def _why_no_range(path: str, rules: Sequence[Rule]) -> str:
    """Say why no rule gives a field a range, in the words of the silent rule, if it has such words."""
    mine = [rule.words for rule in rules if rule.path == path]
    if not mine:
        return "no rule gives this field a range"
    said = next((words.silent for words in mine if words.silent is not None), "for these facts")
    return f"the rule of this field gives no range {said}"


def _what_to_write(path: str, prior: WrittenPrior | Weights | None) -> str:
    """Say which ranges may be written for a field of this type."""
    written = [f"{{{form}}}" for form in forms(path)]
    if not written:
        return "it is a list, and cannot vary: write it under base"
    if isinstance(prior, WrittenPrior):
        value = shown(prior.value) if allowed(path, prior.value) else "option"
        return f"write a range beside the prior: {{{forms(path)[0]}, prior: {value}}}"
    return f"write a range: {' or '.join(written)}"
