"""Turns what would mend the best recipe (`trainable.curves.remedies`) into what the next search expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple, assert_never

from search.learning.evidence import Evidence, LeftAlone, ProposedEdit, overridden
from search.learning.objections import objection
from search.learning.ranges import belief, wider, written
from search.learning.trends import by_luck
from search.study import Study
from spaces.catalog.overrides import FORMS
from spaces.domains import Choice, Value, domain_tree, is_number, shown
from spaces.priors import Normal, Uniform, Weights, believed, density
from spaces.space import Dimension
from trainable.curves.task_curves import Remedy

# the trials speak against a change if they are better without it, with a probability below this; our choice
AGAINST = 0.05


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
    change = _as_spelt(dimension, change)
    name = dimension.name if dimension is not None else change.path
    considered = f"{shown(change.now)} -> {shown(change.to)} ({change.why}) was considered"
    if change.path in evidence.space.pins or (dimension is not None and _is_one_value(dimension)):
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


def _as_spelt(dimension: Dimension | None, change: Remedy) -> Remedy:
    """Return the change as the options spell it: a field may be switched off by 0 or by null."""
    if dimension is None or not isinstance(dimension.domain, Choice) or change.to in dimension.domain:
        return change
    return replace(change, to=None) if change.to == 0.0 and None in dimension.domain else change


def _left_out(evidence: Evidence, dimension: Dimension | None, change: Remedy) -> str | None:
    """Return why the field's rule leaves out a value that the searched space does not offer either."""
    best = evidence.summary.best
    if best is None or (dimension is not None and change.to in dimension.domain):
        return None
    return objection(evidence, change, best.whole_recipe)


def _is_one_value(dimension: Dimension) -> bool:
    """Say whether the study fixes this variant, as in `optimizer.lr[sgd]: {fixed: 0.1}`."""
    return isinstance(dimension.domain, Choice) and len(dimension.domain.options) == 1


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
        return (
            1.0 - evidence.trends.chance_with(dimension, change.to) if change.to in dimension.domain else 1.0
        )
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
