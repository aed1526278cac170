"""Explains every range and value, as rows to print or to write beside the values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from spaces.catalog.catalog import document
from spaces.catalog.overrides import OVERRIDES
from spaces.catalog.wide_space import STATED
from spaces.conditions import holds, options_of, scalars_of
from spaces.domains import Domain, Value, Values, is_number, shown
from spaces.facts import Facts
from spaces.forms import purpose_of
from spaces.priors import Normal, Prior, describe
from spaces.rules.heuristics import values_for
from spaces.rules.rules import RULES, Rule
from spaces.rules.rulings import PAGE, PAGES, anchor
from spaces.space import Dimension, RuleValue, Space
from trainable.recipe import REFERENCE_BATCH, Recipe
from trainable.recipe.base import Purpose
from trainable.recipe.optimizers import batch_factor

RATE, _OPTIMIZER, _TIMM_NAME = "optimizer.lr", "optimizer.kind", "optimizer.name"


class Row(NamedTuple):
    """One range or value: its dotted path or dimension name, what it is, the reason and the source."""

    path: str
    what: str
    reason: str
    source: str


def space_rows(space: Space) -> list[Row]:
    """Return what varies, in drawing order, then every fixed value in the recipe's order."""
    varying = [
        Row(each.name, _ranged(each, space), each.reason_for(space.own), each.source)
        for each in space.dimensions
    ]
    paths = {each.path for each in space.dimensions}
    ruled = _ruled(space, space.base)
    fixed = [
        _pinned(path, value) if path in space.pins else _row(path, value, ruled, [], {})
        for path, value in space.base.leaves()
        if path not in paths
    ]
    return varying + fixed


def sections(space: Space) -> list[str]:
    """Return where the repository explains each rule of a space: a page with its anchor, in drawing order."""
    return [f"{PAGE}#{anchor(path)}" for path in dict.fromkeys(rule.path for rule in _rules_behind(space))]


def evidence(space: Space) -> list[str]:
    """Return the pages in the repository that say what the rules of a space rest on, in drawing order."""
    pages = dict.fromkeys(rule.words.page for rule in _rules_behind(space))
    return [f"{PAGES}/{page}" for page in pages if page is not None]


def _rules_behind(space: Space) -> list[Rule]:
    """Return the rules that gave a space its ranges: none where a person wrote one, and none in `wide`."""
    task = space.base.task.kind
    by_rule = {each.path for each in space.dimensions if each.source not in (OVERRIDES, STATED)}
    return [rule for rule in RULES if rule.path in by_rule and task in rule.tasks]


def recipe_rows(recipe: Recipe, space: Space | None = None, facts: Facts | None = None) -> list[Row]:
    """Explain every value of a recipe, by the value or the prior that the rules gave it in its space.

    Without a space, the documents' rules for the facts of its data are used; without both, no rule.
    """
    ruled, dimensions, pins = _rules_of(recipe, space, facts)
    values = scalars_of(recipe)
    holding = [each for each in dimensions if holds(each.when, recipe)]
    return [
        _pinned(path, value) if path in pins else _row(path, value, ruled, holding, values)
        for path, value in recipe.leaves()
    ]


def reasons(recipe: Recipe, space: Space | None = None, facts: Facts | None = None) -> dict[str, Purpose]:
    """Return the reason of each value of a recipe, and who says so, by dotted path; see `recipe_rows`."""
    return {row.path: Purpose(row.reason, row.source) for row in recipe_rows(recipe, space, facts)}


def _rules_of(
    recipe: Recipe, space: Space | None, facts: Facts | None
) -> tuple[Mapping[str, RuleValue], Sequence[Dimension], Set[str]]:
    """Return the values that rules give to a recipe, the dimensions that it may come from, and its pins."""
    if space is not None:
        return _ruled(space, recipe), space.dimensions, space.pins
    if facts is not None:
        return values_for(facts, recipe), document(facts, recipe), frozenset()
    return {}, (), frozenset()


def _ruled(space: Space, recipe: Recipe) -> dict[str, RuleValue]:
    return space.values_by_rule(scalars_of(recipe))


def _ranged(dimension: Dimension, space: Space) -> str:
    """Describe the domain of a dimension, its prior, and the condition under which it exists."""
    words = with_own_names(describe(dimension.domain, dimension.prior(space.own)), dimension.path, space)
    if dimension.path == RATE:
        words = f"{words}; at batch {REFERENCE_BATCH}{_at_own_batch(dimension, space)}"
    if dimension.when is None:
        return words
    section = dimension.path.rpartition(".")[0]
    return f"{words}; when {condition_in_words(dimension, space).removeprefix(f'{section}.')}"


def with_own_names(words: str, path: str, space: Space) -> str:
    """Return words on the values of a field in which optimizers of timm's are called by their own names."""
    if path != _OPTIMIZER:
        return words
    names = options_of(space.dimensions).get(_TIMM_NAME, (space.base.optimizer.title,))
    return re.sub(r"\btimm\b", f"timm's {' or '.join(map(str, names))}", words)


def condition_in_words(dimension: Dimension, space: Space) -> str:
    """Return when a dimension exists, in words; empty where it always does. That of timm's name itself is
    said as a study writes it."""
    if (when := dimension.when) is None:
        return ""
    return str(when) if dimension.path == _TIMM_NAME else with_own_names(str(when), when.path, space)


def _at_own_batch(dimension: Dimension, space: Space) -> str:
    """Describe the rates at the recipe's own batch, as the optimizers of the dimension scale them."""
    if (batch := space.base.loop.batch_size) == REFERENCE_BATCH:
        return ""
    kinds: dict[float, list[str]] = {}
    for kind in _optimizers(dimension, space):
        scaling = space.recipe({_OPTIMIZER: kind}).optimizer.scaling
        kinds.setdefault(batch_factor(scaling, batch / REFERENCE_BATCH), []).append(shown(kind))
    if len(kinds) > 1:
        each = ", ".join(f"x{factor:.2g} for {' and '.join(names)}" for factor, names in kinds.items())
        return f" (at {batch}: {with_own_names(each, _OPTIMIZER, space)})"
    (factor,) = kinds
    return f" ({_times(factor, dimension.domain, dimension.prior(space.own))} at {batch})"


def _optimizers(dimension: Dimension, space: Space) -> tuple[Value, ...]:
    """Return the kinds of optimizer that a dimension of the rate applies to."""
    if (when := dimension.when) is not None and when.path == _OPTIMIZER:
        return when.values
    return options_of(space.dimensions).get(_OPTIMIZER, (space.base.optimizer.kind,))


def _times(factor: float, domain: Domain, prior: Prior) -> str:
    """Describe the believed rate, or else the range of rates, multiplied by a factor."""
    if isinstance(prior, Normal):
        return f"{factor * prior.centre:.2g}"
    numbers = [factor * each for each in domain.extremes() if is_number(each)]
    return f"{min(numbers):.2g} to {max(numbers):.2g}"


def _row(
    path: str, value: Any, ruled: Mapping[str, RuleValue], dimensions: Sequence[Dimension], values: Values
) -> Row:
    """Explain a value by the rule if it is the rule's value, else by the prior that it was drawn from, else
    by the rule that it differs from, or by the field's purpose."""
    rule = ruled.get(path)
    if rule is not None and value == rule.value:
        return Row(path, _shown(value), rule.reason, rule.source)
    for each in dimensions:
        if each.path == path and value in each.domain:
            drawn_from = _drawn_from(each, values)
            return Row(path, _shown(value), f"{drawn_from}: {each.reason_for(values)}", each.source)
    if rule is not None:
        reason = f"other than the rule's {shown(rule.value)}: {rule.reason}"
        return Row(path, _shown(value), reason, rule.source)
    return Row(path, _shown(value), *purpose_of(path))


def _drawn_from(dimension: Dimension, values: Values) -> str:
    prior = dimension.prior(values)
    words = describe(dimension.domain, prior)
    return words if isinstance(prior, Normal) else f"from {words}"


def _pinned(path: str, value: Any) -> Row:
    return Row(path, _shown(value), f"pinned; {purpose_of(path).reason}", "written in the study")


def _shown(value: Any) -> str:
    return f"[{', '.join(map(shown, value))}]" if isinstance(value, list) else shown(value)
