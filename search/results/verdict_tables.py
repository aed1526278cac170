"""Builds tables of the verdicts on the rules, for the screen."""

from __future__ import annotations

from dataclasses import replace

from rich.text import Text

from search.record.verdicts import Verdict, Verdicts
from search.results.tables import Rows, TableRow
from search.verdicts.words import counts, effect, fixed, promise

COLOURS = {"supported": "green", "contradicted": "red", "untested": "dim"}


def brief_table(verdicts: Verdicts) -> Rows:
    """Returns one row for each rule with a clear verdict: the verdict, its size, and what the rule says."""
    rows = tuple((*_cells(each), each.says) for each in verdicts.clear)
    return _rows("", ("rule", "verdict", "places of 100", "follow, depart", "the rule says"), rows)


def full_table(verdicts: Verdicts) -> Rows:
    """Returns one row for each belief, with why it is untested; a line below lists the fixed values."""
    title = f"verdicts on the rules, from {verdicts.trials} trials: {counts(verdicts)}"
    columns = ("rule", "verdict", "places of 100", "follow, depart", "why untested", "the rule says")
    rows = tuple((*_cells(each), each.why or "", each.says) for each in verdicts.beliefs)
    caption = "\n".join(filter(None, (promise(verdicts), fixed(verdicts))))
    return replace(_rows(title, columns, rows), caption=caption)


def _rows(title: str, columns: tuple[str, ...], rows: tuple[TableRow, ...]) -> Rows:
    return Rows(title, columns, rows, head=3, whole=frozenset({"rule", "verdict", "places of 100"}))


def _cells(verdict: Verdict) -> tuple[str, Text, str, str]:
    sides = f"{verdict.follow}, {verdict.depart}" if verdict.follow or verdict.depart else ""
    word = Text(verdict.word, style=COLOURS[verdict.word])
    return verdict.rule, word, effect(verdict), sides
