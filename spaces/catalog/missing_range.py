"""Why a field has no range although a person believes something of it, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spaces.catalog.overrides import WrittenPrior, path_of
from spaces.conditions import check_had, options_of
from spaces.domains import shown
from spaces.forms import allowed, forms
from spaces.priors import Weights
from spaces.rules.rules import Rule
from spaces.space import Dimension
from trainable.errors import Fault
from trainable.recipe import Recipe


def missing_range(
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
    return Fault(name, f"{why_no_range(path, rules)}; {what_to_write(path, prior)}")


def why_no_range(path: str, rules: Sequence[Rule]) -> str:
    """Say why no rule gives a field a range, in the words of the silent rule, if it has such words."""
    mine = [rule.words for rule in rules if rule.path == path]
    if not mine:
        return "no rule gives this field a range"
    said = next((words.silent for words in mine if words.silent is not None), "for these facts")
    return f"the rule of this field gives no range {said}"


def what_to_write(path: str, prior: WrittenPrior | Weights | None) -> str:
    """Say which ranges may be written for a field of this type."""
    written = [f"{{{form}}}" for form in forms(path)]
    if not written:
        return "it is a list, and cannot vary: write it under base"
    if isinstance(prior, WrittenPrior):
        value = shown(prior.value) if allowed(path, prior.value) else "option"
        return f"write a range beside the prior: {{{forms(path)[0]}, prior: {value}}}"
    return f"write a range: {' or '.join(written)}"
