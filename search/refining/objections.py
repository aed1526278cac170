"""What the documents' rules have against a change that would mend the best recipe."""

from __future__ import annotations

import inspect
import re

from search.refining.evidence import Evidence
from spaces.conditions import has, settled_values
from spaces.domains import Choice
from spaces.heuristics import frame
from spaces.rules import RULES, Rule
from spaces.rulings import Distribution
from spaces.space import Values
from trainable.recipe import Recipe
from trainable.remedies import Change


def objection(evidence: Evidence, change: Change, recipe: Recipe) -> str | None:
    """Why the rules of a field leave a value out for these facts; None where one offers it, or none speaks.

    A rule that speaks only where a person asks counts as one that offers: nothing in it says no.
    """
    settled = settled_values(recipe)
    asked = [(rule, rule.of(evidence.facts, settled)) for rule in RULES if _speaks_of(rule, change, recipe)]
    if not asked or any(found is not None and _offers(found, change) for _, found in asked):
        return None
    rule, found = next((each for each in asked if each[1] is not None), asked[0])
    return f"the rule leaves it out: {_why(evidence, rule, found, settled)}"


def _speaks_of(rule: Rule, change: Change, recipe: Recipe) -> bool:
    if rule.path != change.path or (when := rule.when) is None:
        return rule.path == change.path
    return has(recipe, when.path) and recipe.get(when.path) in when.values


def _offers(found: Distribution, change: Change) -> bool:
    """A range of numbers can grow, which is not for a rule to forbid; options are meant as they stand."""
    return not isinstance(found.domain, Choice) or change.to in found.domain


def _why(evidence: Evidence, rule: Rule, found: Distribution | None, settled: Values) -> str:
    """In the rule's own words, of which the page of heuristics is made: only they say why it is silent."""
    sentences = re.split(r"(?<=\.)\s+", (inspect.getdoc(rule.of) or "").replace("\n", " "))
    if found is not None:
        return f"{found.domain}; {_plain(sentences[0])} ({found.source})"
    if silent := [each for each in sentences if "silent" in each.lower()]:
        return _plain(silent[0])
    if ruling := frame(evidence.facts).get(rule.path):
        return f"{ruling.reason} ({ruling.source})"
    return _plain(sentences[0])


def _plain(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}".rstrip(".")
