"""Verdicts on a search's rules as records: what the trials say of each, with an effect and an interval.

`search.verdicts.judging` gives them and `search.verdicts.words` prints them. docs/decisions/0010-verdicts.md
tells how they come about, how many are false, and how large an effect must be to be seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

FALSE_SHARE = 0.1
"""Of the verdicts that are not `untested`, at most so many are expected to be false, on average."""

Word = Literal["supported", "contradicted", "untested"]
WORDS: tuple[Word, ...] = ("supported", "contradicted", "untested")


@dataclass(frozen=True)
class Verdict:
    """What the trials say of one rule."""

    rule: str
    """A dimension's name, as `optimizer.lr[sgd]`, or the path of a field that a rule fixed."""
    word: Word
    says: str
    """What the rule believes, or the value that it fixed."""
    source: str
    follow: int = 0
    """Trials whose value is as likely as the rule's own draws are on average; `depart` counts the others."""
    depart: int = 0
    effect: float | None = None
    """Places of 100 that trials which follow gain on those which depart; None where it is not estimated."""
    interval: tuple[float, float] | None = None
    why: str | None = None
    """Of an untested rule, why it is."""
    fixed: bool = False
    """Whether the rule gave a value that never varied: it believes nothing that a trial could speak on."""

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
    """What a search says of every rule of its space, in the space's order; then what rules `fixed`."""

    rules: tuple[Verdict, ...] = ()
    trials: int = 0
    """How many were compared."""
    level: float | None = None
    """The confidence of the intervals; None where there is none."""

    def of(self, word: Word) -> list[Verdict]:
        """The beliefs with this verdict, in order."""
        return [each for each in self.beliefs if each.word == word]

    @property
    def beliefs(self) -> list[Verdict]:
        """Those that trials could speak on, in order."""
        return [each for each in self.rules if not each.fixed]

    @property
    def fixed(self) -> list[Verdict]:
        """Those that only gave a value, in order."""
        return [each for each in self.rules if each.fixed]

    @property
    def clear(self) -> list[Verdict]:
        """Those that support or contradict, in order."""
        return [each for each in self.rules if each.word != "untested"]

    def json(self) -> dict[str, Any]:
        return {
            "trials": self.trials,
            "interval_level": self.level,
            "false_share": FALSE_SHARE,
            "rules": [each.json() for each in self.rules],
        }
