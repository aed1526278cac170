"""Says why the documents' rules refuse a change that would mend the best recipe."""

from __future__ import annotations

from search.learning.evidence import Evidence
from spaces.conditions import holds, scalars_of
from spaces.domains import Choice, Values
from spaces.rules.heuristics import kinds_and_batch
from spaces.rules.rules import RULES, Rule
from spaces.rules.rulings import Distribution
from trainable.curves.task_curves import Remedy
from trainable.recipe import Recipe


def objection(evidence: Evidence, change: Remedy, recipe: Recipe) -> str | None:
    """Return why a field's rules leave a value out for these facts; None where none does.

    It is None too where one rule offers the value, or no rule applies. A rule that applies only where a
    person asks counts as one that offers: nothing in it forbids the value.
    """
    values = scalars_of(recipe)
    speaking = [rule for rule in RULES if rule.path == change.path and holds(rule.when, recipe)]
    asked = [(rule, rule.of(evidence.search.facts, values)) for rule in speaking]
    if not asked or any(found is not None and _offers(found, change) for _, found in asked):
        return None
    rule, found = next((each for each in asked if each[1] is not None), asked[0])
    return f"the rule leaves it out: {_why(evidence, rule, found, values)}"


def _offers(found: Distribution, change: Remedy) -> bool:
    """Say whether a rule offers a change: a range of numbers may grow, options are a complete list."""
    return not isinstance(found.domain, Choice) or change.to in found.domain


def _why(evidence: Evidence, rule: Rule, found: Distribution | None, values: Values) -> str:
    summary = rule.words.summary.rstrip(".")
    if found is not None:
        return f"{found.domain}. {summary} ({found.source})"
    if rule.words.silent is not None:
        return f"the rule gives no range {rule.words.silent}"
    if ruling := kinds_and_batch(evidence.search.facts).get(rule.path):
        return f"{ruling.reason} ({ruling.source})"
    return summary
