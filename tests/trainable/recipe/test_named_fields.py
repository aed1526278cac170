"""Tests that every field of a recipe's data and masks that a message about them names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from trainable.recipe.data import Columns, Data
from trainable.recipe.tasks import Masks

FIELD = re.compile(r"(?<![\w./-])(task\.masks|data\.columns|data)\.([a-z_]+)(?![\w(]|\.[a-z])")
SECTIONS: dict[str, type[BaseModel]] = {"data": Data, "data.columns": Columns, "task.masks": Masks}


@pytest.mark.parametrize(("room", "least"), [("data", 100), ("checks", 15), ("tasks", 75)])
def test_every_field_that_a_message_names_exists(room: str, least: int) -> None:
    found = list[tuple[Path, str, str]]()
    for path in sorted(Path("trainable", room).rglob("*.py")):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                found += [(path, *named) for named in FIELD.findall(each.value)]
    assert [each for each in found if each[2] not in SECTIONS[each[1]].model_fields] == []
    assert len(found) >= least
