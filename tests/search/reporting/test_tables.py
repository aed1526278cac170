"""Tests that wide screens get tables, and narrow ones blocks of lines."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from search.reporting.tables import STACKED_BELOW, TextTable
from search.reporting.terminal import rows_table
from spaces.catalog.explain import Row
from spaces.domains import counted

RATE = Row("optimizer.lr[sgd]", "around 0.3 within 0.03 to 3, log", "higher in short runs, " * 6, "001:22-76")
FLAG = Row("loop.batch_size", "128", "a rule", "")


def printed(rows: TextTable, width: int) -> list[str]:
    out = Console(file=io.StringIO(), width=width, highlight=False)
    out.print(rows)
    assert isinstance(out.file, io.StringIO)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


def test_a_wide_screen_gets_a_row_each_under_headings() -> None:
    lines = printed(rows_table("space document", [FLAG, FLAG]), STACKED_BELOW)
    assert lines[0].strip() == "space document"
    assert lines[1].split() == ["field", "range", "or", "value", "why"]
    assert [line.split() for line in lines[2:]] == [["loop.batch_size", "128", "a", "rule"]] * 2


def test_a_narrow_screen_gets_a_block_each_with_whole_words() -> None:
    lines = printed(rows_table("space document", [RATE, FLAG]), 80)
    assert lines[1] == "optimizer.lr[sgd]  around 0.3 within 0.03 to 3, log"
    assert lines[2].startswith("    why: higher in short runs, higher in")
    assert lines[-3:] == [
        "    source: PyTorch tuning guide 001:22-76",
        "loop.batch_size  128",
        "    why: a rule",
    ]
    assert all(line.startswith("    ") for line in lines[2:-2])
    assert max(map(len, lines)) <= 80
    assert set(" ".join(lines).split()) >= set(" ".join(RATE).split())


def test_the_first_line_of_a_block_goes_on_below_indented() -> None:
    lines = printed(TextTable("", ("field", "range"), (("a.b", "one of " + "option, " * 20),), head=2), 60)
    assert len(lines) == 4
    assert lines[0].startswith("a.b  one of option")
    assert all(line.startswith("    option") for line in lines[1:])


def test_a_column_without_content_is_left_out() -> None:
    rows = TextTable("", ("field", "why", "source"), (("a", "", "s"), ("b", "", "s")))
    assert printed(rows, 120)[0].split() == ["field", "source"]


@pytest.mark.parametrize(("number", "wanted"), [(0, "0 trials"), (1, "1 trial"), (2, "2 trials")])
def test_things_are_counted_in_words(number: int, wanted: str) -> None:
    assert counted(number, "trial") == wanted
