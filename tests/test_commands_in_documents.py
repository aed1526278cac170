"""Reads every `tunebook ...` line of the documents: the program takes its command, arguments and options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from search.__main__ import app
from search.study import STUDY_FILE, Study
from tests.document_lines import FENCE, Line, lines
from trainable.recipe.yamlfile import parse_tree

ROOT = Path(__file__).parents[1]
PROGRAM: Any = typer.main.get_command(app)
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # typer has no name of its own for it


def documents() -> list[Path]:
    """Return the documents with commands; decisions tell what was, when they were made."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [each for each in pages if each.parent.name != "decisions" and [*lines(each)]]


def faults(line: Line) -> str | None:
    """Return what the program would refuse in a line before it reads any file; None if nothing."""
    name, *given = shlex.split(line.text)
    if name not in PROGRAM.commands:
        return f"no command {name}"
    if line.is_synopsis:
        named = [PROGRAM.commands[each] for each in line.text.split() if each in PROGRAM.commands]
        known = {option for each in named for param in each.params for option in param.opts}
        unknown = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", line.text)) - known
        return f"no option {', '.join(sorted(unknown))} of {name}" if unknown else None
    try:
        PROGRAM.commands[name].make_context(name, given)
    except USAGE_ERROR as error:
        return str(error.format_message())
    return None


@pytest.fixture(autouse=True)
def no_cluster_or_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Addresses in documents are of nobody: Ray's token is not looked for, nor a store's region; and every
    search is there."""
    monkeypatch.setattr("search.commands.options.send_token", lambda address: None)
    monkeypatch.setattr("search.record.storage.local_folder", Path)
    (tmp_path / STUDY_FILE).touch()
    monkeypatch.setattr("search.commands.options.on_this_machine", lambda address: tmp_path)
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://HEAD:8265")  # as docs/cluster.md says


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_program_takes_every_command_of_a_document(document: Path) -> None:
    found = [(line, faults(line)) for line in lines(document)]
    assert [f"line {line.number}: tunebook {line.text}: {fault}" for line, fault in found if fault] == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("serch digits", "no command serch"),
        ("bundle", "Missing"),
        ("check digits --quick", "No such option: --quick"),
        ("extend DIR", "trials"),
        ("show DIR [--csv]", "no option --csv of show"),
    ],
)
def test_what_the_program_would_refuse_is_found(line: str, fault: str) -> None:
    assert fault in (faults(Line(line, 1)) or "")


def test_lines_are_found_in_both_kinds_of_blocks_and_joined(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\n    tunebook show DIR   # a comment\n\ntunebook is prose\n\n"
        "```sh\n$ tunebook check digits \\\n    --seconds 9\n```\n\n"
        "    tunebook show DIR [--json]\n                     [--gone]\n"
    )
    assert {each.text for each in lines(page)} == {
        "show DIR",
        "check digits --seconds 9",
        "show DIR [--json] [--gone]",
    }


def studies() -> Iterator[tuple[str, str]]:
    """Yield each block of YAML in the documents that is a whole study, with where it is."""
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for kind, block in FENCE.findall(document.read_text(encoding="utf-8")):
            if kind == "yaml" and re.search(r"^data:", block, re.MULTILINE):
                yield f"{document.relative_to(ROOT)}: {block.splitlines()[0]}", block


@pytest.mark.parametrize("block", [pytest.param(block, id=where) for where, block in studies()])
def test_a_study_in_a_document_is_one(block: str) -> None:
    Study.from_tree(parse_tree(block, "study"))
