"""Writes verdicts for a person: sentences, a page of Markdown and a table for MLflow."""

from __future__ import annotations

import json
from typing import Any

from search.record.verdicts import FALSE_SHARE, WORDS, Verdict, Verdicts
from trainable.markdown import plain, table


def counts(verdicts: Verdicts) -> str:
    """Return how many beliefs got which verdict, in one line."""
    return ", ".join(f"{len(verdicts.of(word))} {word}" for word in WORDS)


def promise(verdicts: Verdicts) -> str:
    """Return what the figures mean, and how far they can be trusted."""
    meaning = "places: how many more of 100 other trials a trial beats by following the rule, all else equal"
    if verdicts.level is None:
        return meaning
    share = f"at most 1 verdict in {1 / FALSE_SHARE:.0f} is expected to be false"
    return f"{meaning}; intervals at {_percent(verdicts.level)}: {share}"


def fixed(verdicts: Verdicts) -> str:
    """Return the rules that gave a value and no belief, in one line; empty where there is none."""
    if not (rules := verdicts.fixed):
        return ""
    values = ", ".join(f"{each.rule} {each.says}" for each in rules)
    text = "more rule fixed a value" if len(rules) == 1 else "more rules fixed a value"
    return f"{len(rules)} {text}, which no trial varied: {values}"


def markdown(verdicts: Verdicts) -> str:
    """Return a table of the rules that the trials support or contradict; the others are counted."""
    lines = [f"**Rules**: {counts(verdicts)}, from {verdicts.trials} trials."]
    if verdicts.clear:
        rows = [(plain(each.rule), each.word, effect(each), plain(each.says)) for each in verdicts.clear]
        lines += [
            "",
            table(("rule", "verdict", "places of 100", "the rule says"), rows),
            "",
            promise(verdicts),
        ]
    return "\n".join(lines)


def mlflow_table(verdicts: Verdicts) -> str:
    """Return every rule in the JSON of MLflow's `log_table`, which MLflow shows as a table.

    `log_table` itself is not called, because it would append to the table.
    """
    rows: list[dict[str, Any]] = [each.json() for each in verdicts.rules]
    columns = list(Verdict("", "untested", "", "").json())
    return json.dumps({"columns": columns, "data": [[row[name] for name in columns] for row in rows]})


def effect(verdict: Verdict) -> str:
    """Return the effect with its interval, as in +31 (18 to 44)."""
    if verdict.effect is None or verdict.interval is None:
        return ""
    low, high = verdict.interval
    return f"{verdict.effect:+.0f} ({low:.0f} to {high:.0f})"


def _percent(level: float) -> str:
    return f"{level:.1%}".replace(".0%", "%")
