"""Tests that what somebody wrote is printed as it is, and that no terminal obeys it or cannot show it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from search.reporting.tables import TextTable
from search.reporting.terminal import console, say
from trainable.errors import UserError, visible
from trainable.terminal import CLONE, document, show_what_can_be_shown, tell, tell_json

ORDERS = ("\x1b]0;x\x07", "\x1b[2J", "\x9b2J", "a\u202eb", "\u2066", "\r", "\x08", "\x7f", "\udc80", "\u2028")
KEPT = (
    "苹果",
    "é",
    "\U0001f355",
    "می\u200cخواهم",
    "👨\u200d👩",
    "a b",
    "[bold]x[/bold]",
    "[/]",
    "lr[sgd]",
    "a/:cat:/b",
)


@pytest.mark.parametrize("text", ORDERS, ids=ascii)
def test_what_a_terminal_would_obey_is_an_escape_wherever_it_is_printed(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(f"class {text}")
    tell(text, sys.stderr)
    say(text)
    console().print(TextTable(text, ("name", text), ((text, Text(text)),), caption=text))
    out, err = capsys.readouterr()
    for line in (*out.split("\n"), *err.split("\n"), *str(UserError(text)).split("\n")):
        assert visible(line) == line
    assert visible(text) in err


def test_a_cell_is_as_wide_as_what_is_shown_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("name", "state")
    table.add_row("a\x1b[2Jb", Text("done"))
    console().print(table)
    assert r" a\x1b[2Jb " in capsys.readouterr().out


@pytest.mark.parametrize("text", KEPT, ids=ascii)
def test_what_people_write_is_printed_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    tell(text)
    say(text)
    console().print(TextTable("", ("name",), ((text,),)))
    out, _ = capsys.readouterr()
    assert [line.strip() for line in out.splitlines()] == [text, text, "name", text]


@pytest.mark.parametrize("by_a_command", [True, False], ids=["a command", "a script"])
@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_an_encoding_that_has_not_a_letter_shows_another(
    encoding: str, by_a_command: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding=encoding))
    if by_a_command:
        show_what_can_be_shown()
    tell("苹果 é")
    console().print(TextTable("", ("name",), (("苹果",),)))
    sys.stdout.flush()
    shown = written.getvalue().decode(encoding)
    assert ("苹果" if encoding == "utf-8" else r"\u82f9\u679c") in shown
    assert len(shown.splitlines()) == 3


@pytest.mark.parametrize("text", [*ORDERS[:-2], *KEPT], ids=ascii)
def test_json_is_printed_in_ascii_and_says_the_same(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    tell_json(json.dumps({text: text}, ensure_ascii=False, indent=2))
    out, _ = capsys.readouterr()
    assert out.isascii()
    assert "\x7f" not in out
    assert json.loads(out) == {text: text}


def test_a_page_of_the_documents_is_a_path_in_a_clone_and_is_in_the_repository_of_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CLONE)
    assert document("docs/errors.md#a-study") == "docs/errors.md#a-study"
    monkeypatch.chdir(tmp_path)
    assert document("docs/errors.md#a-study") == f"{CLONE}/docs/errors.md#a-study"
    tmp_path.rmdir()
    assert document("docs/errors.md#a-study") == f"{CLONE}/docs/errors.md#a-study"
    monkeypatch.setattr("trainable.terminal.CLONE", tmp_path)
    assert document("docs/errors.md#a-study") == "docs/errors.md#a-study (in tunebook's repository)"
