"""Verdicts as a person reads them: tables for the screen, a page of Markdown and a table for MLflow."""

from __future__ import annotations

import json
from typing import Any

from rich.table import Table
from rich.text import Text

from search.verdicts.records import FALSE_SHARE, WORDS, Verdict, Verdicts

COLOURS = {"supported": "green", "contradicted": "red", "untested": "dim"}


def counts(verdicts: Verdicts) -> str:
    """How many rules got which verdict, in one line."""
    return ", ".join(f"{len(verdicts.of(word))} {word}" for word in WORDS)


def promise(verdicts: Verdicts) -> str:
    """What the figures mean, and how far they can be trusted."""
    places = "places: how many of 100 other trials one gains on by following the rule, all else being equal"
    if verdicts.level is None:
        return places
    share = f"at most 1 verdict in {1 / FALSE_SHARE:.0f} is expected to be false"
    return f"{places}; intervals at {_percent(verdicts.level)}: {share}"


def brief_table(verdicts: Verdicts) -> Table:
    """One row a rule that the trials spoke on: the verdict, its size, and what the rule says."""
    table = _table("rule", "verdict", "places of 100", "follow, depart", "the rule says")
    for each in verdicts.clear:
        table.add_row(*_cells(each), Text(each.says))
    return table


def full_table(verdicts: Verdicts) -> Table:
    """One row a rule, with why it is untested where it is."""
    table = _table("rule", "verdict", "places of 100", "follow, depart", "why untested", "the rule says")
    table.title = f"verdicts on the rules, from {verdicts.trials} trials: {counts(verdicts)}"
    table.caption = promise(verdicts)
    for each in verdicts.rules:
        table.add_row(*_cells(each), Text(each.why or ""), Text(each.says))
    return table


def markdown(verdicts: Verdicts) -> str:
    """The rules that the trials spoke on as a table, the others counted."""
    lines = [f"**Rules**: {counts(verdicts)}, from {verdicts.trials} trials."]
    if verdicts.clear:
        lines += ["", "| rule | verdict | places of 100 | the rule says |", "|-|-|-|-|"]
        lines += [
            f"| {_plain(each.rule)} | {each.word} | {_effect(each)} | {_plain(each.says)} |"
            for each in verdicts.clear
        ]
        lines += ["", promise(verdicts)]
    return "\n".join(lines)


def mlflow_table(verdicts: Verdicts) -> str:
    """Every rule in the JSON that MLflow shows as a table: `log_table`'s, which itself would append."""
    rows: list[dict[str, Any]] = [each.json() for each in verdicts.rules]
    columns = list(Verdict("", "untested", "", "").json())
    return json.dumps({"columns": columns, "data": [[row[name] for name in columns] for row in rows]})


def _table(*columns: str) -> Table:
    table = Table(title_justify="left", caption_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name in ("rule", "verdict", "places of 100"))
    return table


def _cells(verdict: Verdict) -> tuple[Text, Text, str, str]:
    sides = f"{verdict.follow}, {verdict.depart}" if verdict.follow or verdict.depart else ""
    word = Text(verdict.word, style=COLOURS[verdict.word])
    return Text(verdict.rule), word, _effect(verdict), sides


def _effect(verdict: Verdict) -> str:
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
