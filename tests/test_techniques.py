"""Tests that the page of techniques is true: every field, command, file and test that it names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from search.__main__ import app
from spaces.forms import fields_of, purpose_of
from trainable.errors import RecipeError
from trainable.recipe import Recipe

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "techniques.md"
KINDS = re.compile(r"`(?P<section>[a-z_.]+)\.kind` (?P<kinds>[a-z0-9_]+(?:, [a-z0-9_]+)*)")
LINK = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+)\)")


class Row(NamedTuple):
    number: int
    technique: str
    field: str
    code: str
    test: str
    source: str


def rows() -> list[Row]:
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [Row(int(number), *rest) for number, *rest in cells]


def test_every_row_of_the_documents_is_there() -> None:
    numbers = dict.fromkeys(row.number for row in rows())  # row 33 has two lines: distillation, and pruning
    assert list(numbers) == list(range(1, 51))


MASKS = Recipe.from_tree({"task": {"kind": "segmentation"}})


def of_kind(path: str, kind: str) -> Iterator[Recipe]:
    """Yield the recipes of each task that may have a kind."""
    teacher = {"distillation.teacher": "teacher"} if path == "distillation.kind" else {}
    for recipe in (Recipe(), MASKS):
        with suppress(RecipeError):
            yield recipe.with_values({path: kind, **teacher})


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row.number))
class TestWhatARowNamesExists:
    def test_fields_and_commands(self, row: Row) -> None:
        commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
        for named in re.findall(r"`([^`]+)`", row.field):
            if named.startswith("tunebook "):
                assert named.split()[1] in commands
            elif not named.startswith("--"):
                assert purpose_of(named)
                assert not fields_of(named)
        assert row.field == "none: always so" or "`" in row.field

    def test_kinds(self, row: Row) -> None:
        for match in KINDS.finditer(row.field):
            for kind in match["kinds"].split(", "):
                path = f"{match['section']}.kind"
                assert any(each.get(path) == kind for each in of_kind(path, kind))

    def test_code_and_tests(self, row: Row) -> None:
        for title, path in LINK.findall(row.code):
            assert title == path
            assert (ROOT / path).is_file()
        named = LINK.findall(row.test)
        assert named
        for title, path in named:
            assert f"def test_{title.replace(' ', '_')}(" in (ROOT / path).read_text()

    def test_sources(self, row: Row) -> None:
        assert re.search(r"00\d:\d+|arxiv\.org|timm", row.source)
