"""Builds tables of the verdicts on the rules, for the screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from search.learning.verdict_words import counts, effect, fixed, promise
from search.record.verdicts import Verdict, Verdicts
from search.reporting.tables import Rows, TableRow

COLOURS = {"supported": "green", "contradicted": "red", "untested": "dim"}


def brief_table(verdicts: Verdicts) -> Rows:
    """Return one row for each rule with a clear verdict: the verdict, its size, and what the rule says."""
    return _table("", verdicts.clear)


def full_table(verdicts: Verdicts) -> Rows:
    """Return one row for each belief, with why it is untested; a line below lists the fixed values."""
    title = f"verdicts on the rules, from {verdicts.trials} trials: {counts(verdicts)}"
    caption = "\n".join(filter(None, (promise(verdicts), fixed(verdicts))))
    return _table(title, verdicts.beliefs, caption)


def _table(title: str, verdicts: Sequence[Verdict], caption: str = "") -> Rows:
    columns = ("rule", "verdict", "places of 100", "follow, depart", "why untested", "the rule says")
    rows = tuple(map(_row, verdicts))
    return Rows(title, columns, rows, head=3, whole=set(columns[:3]), caption=caption)


def _row(verdict: Verdict) -> TableRow:
    sides = f"{verdict.follow}, {verdict.depart}" if verdict.follow or verdict.depart else ""
    word = Text(verdict.word, style=COLOURS[verdict.word])
    return verdict.rule, word, effect(verdict), sides, verdict.why or "", verdict.says
