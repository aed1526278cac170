"""Tests that YAML is read strictly, and written with comments, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import parse_tree, read_recipe, read_tree, write_recipe, write_whole


@pytest.mark.parametrize("text", ["1e-3", "1.0e-3", "0.001", "1E-3"])
def test_every_way_to_write_a_thousandth_is_a_number(text: str) -> None:
    assert parse_tree(f"optimizer: {{lr: {text}}}", "text") == {"optimizer": {"lr": 0.001}}


def test_a_key_that_stands_twice_is_refused_with_its_line() -> None:
    with pytest.raises(UserError, match=r"^mine: line 3, column 3: .*\"lr\".*write each key once"):
        parse_tree("optimizer:\n  lr: 0.1\n  lr: 0.2\n", "mine")


def test_broken_yaml_is_refused_with_its_line_and_column() -> None:
    with pytest.raises(UserError, match=r"^mine: line \d+, column \d+: not valid YAML"):
        parse_tree("loop: [1, 2\nmodel: x\n", "mine")


@pytest.mark.parametrize("text", ["- 1\n- 2", "just words", "3"])
def test_a_file_that_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="expected a mapping"):
        parse_tree(text, "mine")


def test_python_objects_cannot_be_named_in_yaml() -> None:
    with pytest.raises(UserError, match="not valid YAML"):
        parse_tree("data: !!python/object/apply:os.system ['true']", "mine")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.yaml: no such file"):
        read_tree(tmp_path / "none.yaml")


def test_every_field_is_written_and_reasons_stand_beside_their_values(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    write_recipe(path, Recipe(), {"optimizer.lr": "linear in the\nbatch"})
    lines = path.read_text().splitlines()
    (line,) = [line for line in lines if "# linear in the batch" in line]
    assert line.split() == ["lr:", "0.1", "#", "linear", "in", "the", "batch"]
    assert "  micro_batch: null" in lines
    assert read_recipe(path) == Recipe()


def test_a_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.yaml"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert [each.name for each in path.parent.iterdir()] == ["file.yaml"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    write_whole(path, b"old")
    with pytest.raises(TypeError):
        write_whole(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file.yaml"]
