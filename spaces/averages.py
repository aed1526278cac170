"""Recipes that score averaged weights, which need a decay that may be known only later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from spaces.catalog.overrides import Varying
from spaces.conditions import settled_values
from spaces.domains import Value
from spaces.facts import Facts
from spaces.priors import mode
from spaces.rules.rules import Rule
from trainable.recipe import Recipe

WEIGHTS, DECAY = "evaluation.weights", "regularisation.ema_decay"
STAND_IN = 0.99
"""Any decay will do until the space settles its own: without one, a recipe with averages is refused."""


def with_values(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with values set; where these ask for averages without a decay, one stands in for it."""
    lacking = values.get(WEIGHTS) == "ema" and recipe.regularisation.ema_decay is None
    return recipe.with_values({DECAY: STAND_IN, **values} if lacking else values)


def own_decay(
    recipe: Recipe, pins: Set[str], facts: Facts, varying: Mapping[str, Varying], rules: Sequence[Rule]
) -> dict[str, Value]:
    """The decay of a recipe that always scores averages, unless a person pinned it, by its path.

    It is the likeliest value of the range that a person wrote, or else of the field's rule: the documents
    have none of their own.
    """
    if recipe.evaluation.weights != "ema" or DECAY in pins:
        return {}
    written = varying.get(DECAY)
    if written is not None and written.domain is not None:
        return {DECAY: mode(written.domain, written.prior_in(written.domain))}
    (rule,) = (each for each in rules if each.path == DECAY)
    found = rule.of(facts, settled_values(recipe))
    return {} if found is None else {DECAY: mode(found.domain, found.prior)}
