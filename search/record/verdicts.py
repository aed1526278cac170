"""Defines the verdicts on a search's rules: what the trials say of each, with an effect and an interval.

`search.learning.verdicts` computes them, and the tables of `search.reporting` print them.
docs/decisions/0010-verdicts.md says how they are computed, how many are false, and how large an effect must
be to be seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

# on average, at most this share of the verdicts that are not `untested` is expected to be false
FALSE_SHARE = 0.1

VerdictWord = Literal["supported", "contradicted", "untested"]
WORDS: tuple[VerdictWord, ...] = ("supported", "contradicted", "untested")


@dataclass(frozen=True)
class Verdict:
    """What the trials say of one rule."""

    rule: str  # a dimension's name, as `optimizer.lr[sgd]`, or the path of a field that a rule fixed
    word: VerdictWord
    says: str  # what the rule believes, or the value that it fixed
    source: str
    # how many trials have a value as likely as the rule's own draws are on average; `depart` counts the
    # others
    follow: int = 0
    depart: int = 0
    # how many more of 100 trials those that follow beat than those that depart; None where not estimated
    effect: float | None = None
    interval: tuple[float, float] | None = None
    why: str | None = None  # why an untested rule is untested
    # whether the rule fixed a value that never varied: it believes nothing that a trial could test
    fixed: bool = False

    def json(self) -> dict[str, Any]:
        low, high = self.interval or (None, None)
        return {
            "rule": self.rule,
            "verdict": self.word,
            "effect": self.effect,
            "low": low,
            "high": high,
            "follow": self.follow,
            "depart": self.depart,
            "why": self.why,
            "says": self.says,
            "source": self.source,
            "fixed": self.fixed,
        }


@dataclass(frozen=True)
class Verdicts:
    """What a search says of every rule of its space, in the space's order; then the `fixed` values."""

    rules: tuple[Verdict, ...] = ()
    trials: int = 0  # how many trials were compared
    level: float | None = None  # the confidence of the intervals; None where there are no intervals

    def of(self, word: VerdictWord) -> list[Verdict]:
        """Return the beliefs with this verdict, in order."""
        return [each for each in self.beliefs if each.word == word]

    @property
    def beliefs(self) -> list[Verdict]:
        """The verdicts on rules that trials could test, in order."""
        return [each for each in self.rules if not each.fixed]

    @property
    def fixed(self) -> list[Verdict]:
        """The verdicts on rules that only fixed a value, in order."""
        return [each for each in self.rules if each.fixed]

    @property
    def clear(self) -> list[Verdict]:
        """The verdicts that support or contradict a rule, in order."""
        return [each for each in self.rules if each.word != "untested"]

    def json(self) -> dict[str, Any]:
        return {
            "trials": self.trials,
            "interval_level": self.level,
            "false_share": FALSE_SHARE,
            "rules": [each.json() for each in self.rules],
        }
