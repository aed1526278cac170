"""Tests verdicts in words: what is shown in full, what is counted, and what MLflow can read."""

from __future__ import annotations

import io
import json

import pandas as pd
from rich.console import Console, RenderableType

from search.learning.verdicts import counts, fixed, markdown, mlflow_table, promise, untested
from search.record.verdicts import Verdict, Verdicts
from search.reporting.tables import brief_table, full_table

RATES = "around 0.5 (high confidence) within 0.1 to 2, log"
RATE = Verdict("optimizer.lr[sgd]", "supported", RATES, "003:23", 30, 12, 31.4, (18.2, 44.1))
MIXING = Verdict("augmentation.mixing.kind", "contradicted", "none 70%", "0", 30, 17, -18.0, (-31.0, -4.6))
UNCLEAR = "the interval contains 0"
CROP = Verdict(
    "augmentation.crop.fraction", "untested", "around 0.1", "0", 30, 17, 4.0, (-9.0, 17.0), UNCLEAR
)
SCHEDULE = Verdict("schedule.kind", "untested", "cosine", "003:13", why="fixed, never varied", fixed=True)
VERDICTS = Verdicts((RATE, MIXING, CROP, SCHEDULE), 48, 0.975)


def printed(*parts: RenderableType, width: int = 160) -> str:
    out = Console(file=io.StringIO(), width=width, highlight=False)
    for part in parts:
        out.print(part)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_a_clear_verdict_is_one_line_with_its_effect_interval_and_sides() -> None:
    lines = printed(brief_table(VERDICTS)).splitlines()
    assert len(lines) == 3, "a heading and two verdicts; the untested are counted elsewhere"
    assert lines[1].split("  ")[0] == "optimizer.lr[sgd]", "the brackets are no style of rich's"
    for part in (
        "supported",
        "+31 (18 to 44)",
        "30, 12",
        "around 0.5 (high confidence) within 0.1 to 2, log",
    ):
        assert part in lines[1]
    assert "-18 (-31 to -5)" in lines[2]


def test_rules_are_counted_by_verdict() -> None:
    assert counts(VERDICTS) == "1 supported, 1 contradicted, 1 untested"


def test_rules_that_fixed_a_value_are_counted_in_a_line_of_their_own() -> None:
    assert fixed(VERDICTS) == "1 more rule fixed a value, which no trial varied: schedule.kind cosine"
    assert fixed(Verdicts((RATE,), 48)) == ""
    batch = Verdict("loop.batch_size", "untested", "128", "003:23", fixed=True)
    assert fixed(Verdicts((RATE, SCHEDULE, batch))).startswith("2 more rules fixed a value, ")


def test_the_full_table_has_every_rule_and_why_it_is_untested() -> None:
    text = printed(full_table(VERDICTS))
    assert "from 48 trials: 1 supported, 1 contradicted, 1 untested" in text
    assert [each.rule for each in VERDICTS.rules if each.rule in text] == [
        each.rule for each in VERDICTS.rules
    ]
    assert "+4 (-9 to 17)" in text
    assert UNCLEAR in text
    assert "1 more rule fixed a value" in text


def test_rules_that_few_trials_leave_untested_are_a_line_in_words_and_no_rows() -> None:
    few = Verdicts(VERDICTS.rules, 19, VERDICTS.level)
    line = untested(few)
    assert line == "1 rule untested: too few trials (19 can be compared, 20 are needed)"
    assert untested(Verdicts(VERDICTS.rules, 20, VERDICTS.level)) == ""
    assert untested(Verdicts((RATE, MIXING), 5, 0.975)) == ""
    text = printed(full_table(few, untested=line))
    assert UNCLEAR not in text
    assert f"{line}; --all lists them" in text
    assert "optimizer.lr[sgd]" in text


def test_on_a_narrow_screen_each_rule_is_a_block_in_which_no_word_is_broken() -> None:
    lines = [line.rstrip() for line in printed(full_table(VERDICTS), width=80).splitlines()]
    assert max(map(len, lines)) <= 80
    at = lines.index("augmentation.crop.fraction  untested  +4 (-9 to 17)")
    assert lines[at + 1 : at + 4] == [
        "    follow, depart: 30, 17",
        f"    why untested: {UNCLEAR}",
        "    the rule says: around 0.1",
    ]
    (rate,) = [number for number, line in enumerate(lines) if line.startswith("optimizer.lr[sgd]")]
    assert "why untested" not in lines[rate + 2]


def test_why_rules_are_untested_has_no_column_where_none_is() -> None:
    assert "why untested" not in printed(full_table(Verdicts((RATE, MIXING), 48, 0.975)))


def test_the_promise_names_the_level_and_the_share_of_false_verdicts() -> None:
    assert promise(VERDICTS).endswith("intervals at 97.5%: at most 1 verdict in 10 is expected to be false")
    assert "interval" not in promise(Verdicts((SCHEDULE,), 3, None))


def test_the_note_is_a_table_of_clear_verdicts_whose_cells_are_not_broken_by_a_bar() -> None:
    barred = Verdict("a.b", "supported", "x | y", "s", 9, 9, 20.0, (1.0, 39.0))
    lines = markdown(Verdicts((barred, SCHEDULE), 20, 0.9)).splitlines()
    assert lines[0] == "**Rules**: 1 supported, 0 contradicted, 0 untested, from 20 trials."
    assert lines[4] == r"| a.b | supported | +20 (1 to 39) | x \| y |"
    assert markdown(Verdicts((SCHEDULE,), 20)).count("\n") == 0


def test_mlflow_reads_the_table_as_its_own() -> None:
    text = mlflow_table(VERDICTS)
    assert list(json.loads(text)) == ["columns", "data"]
    frame = pd.read_json(io.StringIO(text), orient="split")
    assert frame.rule.tolist() == [each.rule for each in VERDICTS.rules]
    assert frame.effect.tolist()[:3] == [31.4, -18.0, 4.0]
    assert frame.effect.isna().tolist() == [False, False, False, True]
    assert frame.fixed.tolist() == [False, False, False, True]
    assert frame.verdict.tolist() == ["supported", "contradicted", "untested", "untested"]


def test_a_table_of_no_rules_still_has_its_columns() -> None:
    assert json.loads(mlflow_table(Verdicts()))["data"] == []
    assert "rule" in json.loads(mlflow_table(Verdicts()))["columns"]
