"""From rules, and what a person wrote over them, to the dimensions of a space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple, TypeVar

from spaces.catalog.overrides import PLACE, Belief, Varying, path_of
from spaces.conditions import check_had, domains_of, has, kind_of, options_of, settled_values, value_of
from spaces.domains import Choice, Domain, SpaceError, Value, shown
from spaces.facts import Facts
from spaces.forms import form_like
from spaces.priors import Weights, believed, within
from spaces.rules.rules import Rule
from spaces.silence import instead, silence
from spaces.space import Believed, Dimension, Values, When
from spaces.tables import answer, written_out
from trainable.errors import Fault, RecipeError
from trainable.recipe import Recipe

T = TypeVar("T")
Named = dict[str, Dimension]
"""Dimensions in drawing order, by the name of the rule that gives each, or that a person wrote."""


class Placed(NamedTuple):
    """A dimension of a space, and the rule that believes something of it; None where a person said what."""

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
    """The dimensions that some trial around `own` can have, in the rules' order.

    A rule speaks where it is `offered`, or where a person wrote of its field. What is written replaces the
    rule's range, or what it believes within that. Raises SpaceError with every fault of what is written.
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
    """The dimensions with what their rules believe for all that may be drawn before each.

    Raises SpaceError where that depends on real numbers.
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
    """With the rule's belief for all values drawn before. They move neither its domain nor its options."""
    first = answer(dimension.beliefs, settled)

    def believed_of(values: Values) -> Believed:
        found = rule.of(facts, values)
        if found is None or (isinstance(found.domain, Choice) and found.domain != dimension.domain):
            return first  # its weights would be those of other options
        reason = found.reason if found.reason != dimension.reason else None
        return Believed(within(dimension.domain, found.prior), reason)

    return replace(dimension, beliefs=written_out(believed_of, settled, before))


def _each(written: Mapping[str, Varying], place: Callable[[str, Varying], T]) -> dict[str, T]:
    """What is placed of all that is written, by name. Raises SpaceError with the faults of all at once."""
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
    """The dimension that a rule gives for these facts, with its belief beside the values settled.

    None where the rule is silent.
    """
    found = rule.of(facts, settled)
    if found is None:
        return None
    belief = Believed(within(found.domain, found.prior))
    return Dimension(rule.path, found.domain, found.reason, found.source, rule.when, rule.variant, belief)


def reachable(dimensions: Named, own: Recipe) -> Named:
    """The dimensions that some trial can have; a condition that always holds is dropped, with its variant."""
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
    """The dimensions, those of a written path replaced by one in their first place, those of a variant alone.

    What no rule speaks of comes last, but kinds come first: other dimensions may depend on them.
    """
    options = options_of(spoken.values()) | {
        name: each.domain.options for name, each in ranged.items() if isinstance(each.domain, Choice)
    }
    made = _each(ranged, lambda name, each: _written(name, each, known, spoken, options, own))
    places = [name if name in made else path_of(name) if path_of(name) in made else name for name in spoken]
    added = [name for name in made if name not in places]
    order = [name for name in added if name.endswith(".kind")] + places
    order += [name for name in added if not name.endswith(".kind")]
    return {name: made[name] if name in made else spoken[name] for name in dict.fromkeys(order)}


def _written(
    name: str,
    written: Varying,
    known: Mapping[str, Rule],
    spoken: Named,
    options: Mapping[str, tuple[Value, ...]],
    own: Recipe,
) -> Dimension:
    assert written.domain is not None
    belief, path = Believed(written.prior_in(written.domain)), path_of(name)
    if name == path:
        when, variant = _condition(path, options, own) or _rules_condition(path, spoken), ""
    else:
        when, variant = known[name].when, known[name].variant
    return Dimension(path, written.domain, "written in the study", PLACE, when, variant, belief)


def _condition(path: str, options: Mapping[str, tuple[Value, ...]], own: Recipe) -> When | None:
    """None for a field that every kind of its section has; else those kinds that have it.

    Raises SpaceError, naming the kinds that have it, where none of them is offered.
    """
    kind = kind_of(path)
    check_had(path, options, own)
    if kind == path or kind not in options:
        return None
    having = tuple(option for option in options[kind] if has(own, path, {kind: option}))
    return None if having == options[kind] else When(kind, having)


def _rules_condition(path: str, spoken: Named) -> When | None:
    """That of the field's own rule where no kind is meant: a decay of averages, where they are scored."""
    whens = [each.when for each in spoken.values() if each.path == path and each.when is not None]
    return next((when for when in whens if not when.path.endswith(".kind")), None)


def _check_met(names: Set[str], met: Named, known: Mapping[str, Rule]) -> None:
    """Raises SpaceError for a written variant that no trial has: it would change nothing."""
    unmet = [name for name in names if name not in met]
    if unmet:
        told = "which no trial of this space has"
        raise SpaceError([Fault(name, f"exists when {known[name].when}, {told}") for name in unmet])


# --- what a person believes ---------------------------------------------------------------------------


def _believed(
    name: str, written: Varying, met: Named, spoken: Named, rules: Sequence[Rule], own: Recipe
) -> Named:
    """The dimensions of a name, or of every variant of a path, that a believed value fits, with that belief.

    Where nothing is believed, they are the rules' own. Raises SpaceError where it fits none, with the range
    of each.
    """
    meant = {each: met[each] for each in met if name in (each, path_of(each))}
    if not meant:
        raise SpaceError([_rangeless(name, written.prior, met, spoken, rules, own)])
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
    """How to write a range that holds a believed value; nothing for one that no recipe takes."""
    for each in meant:
        condition = {each.when.path: each.when.values[0]} if each.when else {}
        try:
            own.with_values({**condition, each.path: value})
        except RecipeError:
            continue
        form = form_like(each.domain)
        return f"; a range of your own may hold it: {{{form}, prior: {shown(value)}}}"
    return ""


def _rangeless(
    name: str,
    prior: Belief | Weights | None,
    met: Named,
    spoken: Named,
    rules: Sequence[Rule],
    own: Recipe,
) -> Fault:
    """Why a belief, or the wish that a rule speaks, says too little where there is no range."""
    unmet = [each for key, each in spoken.items() if name in (key, each.path)]
    if unmet:
        conditions = " or ".join(str(each.when) for each in unmet)
        return Fault(name, f"exists when {conditions}, which no trial of this space has")
    path = path_of(name)
    check_had(path, options_of(met.values()), own)
    return Fault(name, f"{silence(path, rules)}; {instead(path, prior)}")
