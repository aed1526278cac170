"""Tests docs/cli.md: it is what the command line declares today, and its examples can be typed."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from search.__main__ import app
from search.commands.cli_page import commands_of, example_of, page
from tests.golden_pages import WRITE

FILE = Path(__file__).parents[3] / "docs" / "cli.md"
COMMANDS = commands_of(app)


def test_the_page_is_what_the_command_line_declares() -> None:
    written = page(app)
    if os.environ.get(WRITE):
        FILE.write_text(written)
    assert FILE.read_text() == written, f"{WRITE}=1 writes docs/cli.md anew"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_can_be_typed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for search in ("flowers", "leaves"):
        (tmp_path / "searches" / search).mkdir(parents=True)
        (tmp_path / "searches" / search / "study.yaml").touch()
    monkeypatch.chdir(tmp_path)
    program, called, *arguments = shlex.split(example_of(COMMANDS[name]))
    assert (program, called) == ("tunebook", name)
    COMMANDS[name].make_context(name, arguments)


def test_each_option_says_what_it_is_for() -> None:
    unsaid = [
        (name, option.name)
        for name, command in COMMANDS.items()
        for option in command.params
        if not getattr(option, "help", None)
    ]
    assert unsaid == []
