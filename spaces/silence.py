"""Why a field has no range, and what a person may write instead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import getdoc

from spaces.catalog.overrides import Belief
from spaces.domains import shown
from spaces.forms import allowed, forms
from spaces.priors import Weights
from spaces.rules.rules import Rule


def silence(path: str, rules: Sequence[Rule]) -> str:
    """Why no rule speaks of a field: in the words of the rule that is silent for these facts, if it says."""
    mine = [rule for rule in rules if rule.path == path]
    if not mine:
        return "no rule gives this field a range"
    said = next(filter(None, map(when_silent, mine)), "for these facts")
    return f"the rule of this field is silent {said}"


def when_silent(rule: Rule) -> str | None:
    """For which facts a rule says that it is silent; None where it does not say."""
    found = re.search(r"\bSilent (.+?)\.(?: |$)", " ".join(str(getdoc(rule.of)).split()))
    return found[1] if found else None


def instead(path: str, prior: Belief | Weights | None) -> str:
    """Which ranges may be written for a field of its type."""
    written = [f"{{{form}}}" for form in forms(path)]
    if not written:
        return "it is a list, and cannot vary: write it under base"
    if isinstance(prior, Belief):
        value = shown(prior.value) if allowed(path, prior.value) else "option"
        return f"write a range beside the prior: {{{forms(path)[0]}, prior: {value}}}"
    return f"write a range: {' or '.join(written)}"
