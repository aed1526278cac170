"""Verdicts as a person reads them: tables for the screen, a page of Markdown and a table for MLflow."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from rich.text import Text

from search.results.tables import Row, Rows
from search.verdicts.records import FALSE_SHARE, WORDS, Verdict, Verdicts

COLOURS = {"supported": "green", "contradicted": "red", "untested": "dim"}


def counts(verdicts: Verdicts) -> str:
    """How many beliefs got which verdict, in one line."""
    return ", ".join(f"{len(verdicts.of(word))} {word}" for word in WORDS)


def promise(verdicts: Verdicts) -> str:
    """What the figures mean, and how far they can be trusted."""
    places = "places: how many of 100 other trials one gains on by following the rule, all else being equal"
    if verdicts.level is None:
        return places
    share = f"at most 1 verdict in {1 / FALSE_SHARE:.0f} is expected to be false"
    return f"{places}; intervals at {_percent(verdicts.level)}: {share}"


def fixed(verdicts: Verdicts) -> str:
    """The rules that gave a value and no belief, in one line; empty where there is none."""
    if not (rules := verdicts.fixed):
        return ""
    values = ", ".join(f"{each.rule} {each.says}" for each in rules)
    told = "more rule fixed a value" if len(rules) == 1 else "more rules fixed a value"
    return f"{len(rules)} {told}, which no trial varied: {values}"


def brief_table(verdicts: Verdicts) -> Rows:
    """One row a rule that the trials spoke on: the verdict, its size, and what the rule says."""
    rows = tuple((*_cells(each), each.says) for each in verdicts.clear)
    return _rows("", ("rule", "verdict", "places of 100", "follow, depart", "the rule says"), rows)


def full_table(verdicts: Verdicts) -> Rows:
    """One row a belief, with why it is untested where it is; the values that rules fixed in a line below."""
    title = f"verdicts on the rules, from {verdicts.trials} trials: {counts(verdicts)}"
    columns = ("rule", "verdict", "places of 100", "follow, depart", "why untested", "the rule says")
    rows = tuple((*_cells(each), each.why or "", each.says) for each in verdicts.beliefs)
    caption = "\n".join(filter(None, (promise(verdicts), fixed(verdicts))))
    return replace(_rows(title, columns, rows), caption=caption)


def markdown(verdicts: Verdicts) -> str:
    """The rules that the trials spoke on as a table, the others counted."""
    lines = [f"**Rules**: {counts(verdicts)}, from {verdicts.trials} trials."]
    if verdicts.clear:
        lines += ["", "| rule | verdict | places of 100 | the rule says |", "|-|-|-|-|"]
        lines += [
            f"| {_plain(each.rule)} | {each.word} | {effect(each)} | {_plain(each.says)} |"
            for each in verdicts.clear
        ]
        lines += ["", promise(verdicts)]
    return "\n".join(lines)


def mlflow_table(verdicts: Verdicts) -> str:
    """Every rule in the JSON that MLflow shows as a table: `log_table`'s, which itself would append."""
    rows: list[dict[str, Any]] = [each.json() for each in verdicts.rules]
    columns = list(Verdict("", "untested", "", "").json())
    return json.dumps({"columns": columns, "data": [[row[name] for name in columns] for row in rows]})


def _rows(title: str, columns: tuple[str, ...], rows: tuple[Row, ...]) -> Rows:
    return Rows(title, columns, rows, head=3, whole=frozenset({"rule", "verdict", "places of 100"}))


def _cells(verdict: Verdict) -> tuple[str, Text, str, str]:
    sides = f"{verdict.follow}, {verdict.depart}" if verdict.follow or verdict.depart else ""
    word = Text(verdict.word, style=COLOURS[verdict.word])
    return verdict.rule, word, effect(verdict), sides


def effect(verdict: Verdict) -> str:
    """The effect with its interval, as in +31 (18 to 44)."""
    if verdict.effect is None or verdict.interval is None:
        return ""
    low, high = verdict.interval
    return f"{verdict.effect:+.0f} ({low:.0f} to {high:.0f})"


def _plain(text: str) -> str:
    """A cell's text, in which a bar would end the cell."""
    return text.replace("|", "\\|")


def _percent(level: float) -> str:
    return f"{level:.1%}".replace(".0%", "%")
