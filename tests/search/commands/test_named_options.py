"""Tests that every option that a message names exists, and that the command at hand has it, or is named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import typer

from search.__main__ import app

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
AFTER_ITS_COMMAND = re.compile(r"tunebook ([a-z]+(?:-[a-z]+)*)([^`;]*)")
BEFORE_ITS_COMMAND = re.compile(r"(--[a-z-]+)[^`;]* of `tunebook ([a-z-]+)`")
OF_ALL = frozenset({"--help", "--version", "--install-completion"})
OF_OTHER_PROGRAMS = ("search/results/formats/", "search/facts/installed.py", "search/reporting/")
MLFLOW_SERVER = frozenset({"--host", "--workers"})
# Rooms whose messages any command may say, also one without the option
OF_EVERY_COMMAND = ("search/followers/", "search/record/", "trainable/data/", "trainable/models/")


def options() -> Mapping[str, frozenset[str]]:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return {
        name: frozenset(option for parameter in command.params for option in parameter.opts)
        for name, command in group.commands.items()
    }


def messages(file: Path) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings, with `X` for what is filled in."""
    tree = ast.parse(file.read_text())
    notes = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    parts = {id(part) for each in ast.walk(tree) if isinstance(each, ast.JoinedStr) for part in each.values}
    for each in ast.walk(tree):
        if isinstance(each, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in each.values)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in notes | parts:
            yield each.value


def named() -> Iterator[tuple[str, str]]:
    """Yield each message that names an option, after its module's path."""
    files = sorted(file for room in ("search", "spaces", "trainable") for file in Path(room).rglob("*.py"))
    for path in (file for file in files if not str(file).startswith(OF_OTHER_PROGRAMS)):
        if "--" in path.read_text():
            yield from ((str(path), text) for text in messages(path) if OPTION.search(text))


@pytest.fixture(scope="module")
def known() -> Mapping[str, frozenset[str]]:
    return options()


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    return list(named())


def test_every_option_that_is_named_exists(
    known: Mapping[str, frozenset[str]], texts: list[tuple[str, str]]
) -> None:
    every = frozenset[str]().union(*known.values(), MLFLOW_SERVER, OF_ALL)
    assert [(path, each) for path, text in texts for each in OPTION.findall(text) if each not in every] == []


def test_a_command_that_is_named_with_options_has_them(
    known: Mapping[str, frozenset[str]], texts: list[tuple[str, str]]
) -> None:
    pairs = [
        (path, command, option)
        for path, text in texts
        for command, rest in AFTER_ITS_COMMAND.findall(text)
        for option in OPTION.findall(rest)
    ]
    pairs += [
        (path, command, option)
        for path, text in texts
        for option, command in BEFORE_ITS_COMMAND.findall(text)
    ]
    assert len(pairs) > 10
    assert [pair for pair in pairs if pair[1] in known and pair[2] not in known[pair[1]]] == []


def test_what_any_command_may_say_names_a_command_with_the_option(texts: list[tuple[str, str]]) -> None:
    assert [
        (path, text)
        for path, text in texts
        if path.startswith(OF_EVERY_COMMAND) and not re.search(r"tunebook|\b(check|train) ", text)
    ] == []
