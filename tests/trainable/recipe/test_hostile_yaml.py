"""Tests YAML that is unusual or hostile: it is read as text, or refused in one line, and in little time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from search.study import Study
from trainable.errors import FaultyInput, RecipeError, UserError, quoted, shown
from trainable.recipe import Recipe
from trainable.recipe.plain_yaml import LARGEST_TEXT
from trainable.recipe.yamlfile import parse_tree, read_tree

NINES = 9
LAUGHS = "\n".join(
    ["a0: &a0 [1, 1]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * NINES)}]" for i in range(1, 10))]
)
MERGED_LAUGHS = "\n".join(
    ["a0: &a0 {x: 1}", *(f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * NINES)}]" for i in range(1, 10))]
)


def test_a_date_is_text_as_a_name_is_meant() -> None:
    tree = parse_tree("name: 2026-11-22\ndata: {path: digits}", "mine")
    assert tree["name"] == "2026-11-22"
    assert Study.from_tree(tree).name == "2026-11-22"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: !!binary aGVsbG8=", "tag:yaml.org,2002:binary"),
        ("name: !!set {a}", "tag:yaml.org,2002:set"),
        ("loop: !!int ''", "is no int"),
        ("loop: !!bool maybe", "is no bool: maybe"),
        ("[a, b]: 1", "a key must be text, got a list or a mapping"),
        ("? {a: 1}\n: 1", "a key must be text, got a list or a mapping"),
        ("7: 1", "a key must be text, got 7; put it in quotes"),
        ("base: &x [*x]", "holds itself"),
        ("base: &x {loop: *x}", "holds itself"),
        ('data: {path: "a\\0b"}', "must not hold the character NUL"),
        ('data: {path: "\\ud800"}', "half of a surrogate pair"),
        ("data: a\0b", "special characters are not allowed"),
        ("base: " + "[" * 1000 + "]" * 1000, "nested deeper than 32 levels"),
        ("base: " + "{a: " * 40 + "1" + "}" * 40, "nested deeper than 32 levels"),
        ("seed: 100000000000000000000000", "more than 64 bits"),
        ("seed: 0x" + "f" * 9000, "more than 64 bits"),
        ("seed: " + "9" * 5000, "is no int: 999"),
        (LAUGHS, "more than 20,000 values"),
        (MERGED_LAUGHS, "more than 20,000 values"),
        ("name: " + "x" * LARGEST_TEXT, "more than 131,072 characters"),
        ("[" * (LARGEST_TEXT - 1), "nested deeper"),
    ],
)
def test_what_is_not_plain_data_is_refused_in_one_short_line_and_soon(text: str, message: str) -> None:
    began = time.process_time()
    with pytest.raises(UserError) as caught:
        parse_tree(text, "mine")
    assert time.process_time() - began < 30  # without a bound the largest take hours
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 200


def test_a_name_of_an_alias_may_be_used_again() -> None:
    assert parse_tree("a: &x 1\nb: &x 2\nc: *x", "mine") == {"a": 1, "b": 2, "c": 2}


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (file := tmp_path / "study.yaml").open("wb") as sparse:
        sparse.truncate(2**40)
    with pytest.raises(UserError, match=r"study\.yaml: cannot be read: it has more than 524,288 bytes"):
        read_tree(file)


@pytest.mark.timeout(60)
def test_a_pipe_or_a_device_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "study.yaml")
    with pytest.raises(UserError, match="is a named pipe; expected a regular file"):
        read_tree(tmp_path / "study.yaml")
    with pytest.raises(UserError, match="is a device; expected a regular file"):
        read_tree("/dev/zero")


@pytest.mark.parametrize("path", ["a\0b.yaml", "x" * 5000, "y" * 300, "/dev/null/study.yaml"])
def test_a_path_that_no_file_can_have_is_refused(path: str) -> None:
    with pytest.raises(UserError) as caught:
        read_tree(path)
    assert "cannot be read" in str(caught.value)
    assert "\0" not in str(caught.value)
    assert len(str(caught.value)) < 3000


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "a/" + "y" * 300, "caf\udce9"])
def test_a_recipe_and_a_study_refuse_such_a_path_before_they_look_for_it(path: str) -> None:
    with pytest.raises(RecipeError, match=r"^recipe: 1 fault\n  .*path"):
        Recipe.from_tree({"data": {"path": path}})
    with pytest.raises(RecipeError, match=r"^recipe: 1 fault\n"):
        Recipe.from_tree({"model": {"weights": path}})
    with pytest.raises(FaultyInput, match=r"^study: 1 fault\n"):
        Study.from_tree({"data": {"path": "digits"}, "storage": path})


def test_an_unknown_users_home_is_a_folder_that_does_not_exist() -> None:
    study = Study.from_tree({"data": {"path": "~nobody-of-this-name/flowers"}, "storage": "~nobody-either/x"})
    resolved = study.resolved("mine")
    assert resolved.data.path.endswith("/~nobody-of-this-name/flowers")
    assert resolved.storage.endswith("/~nobody-either/x")


def test_numbers_that_no_machine_can_count_to_are_refused() -> None:
    tree = {"data": {"path": "digits"}, "budget": {"trials": 10**18, "epochs": 10**12}}
    with pytest.raises(FaultyInput) as caught:
        Study.from_tree(tree)
    assert [fault.path for fault in caught.value.faults] == ["budget.trials", "budget.epochs"]
    with pytest.raises(FaultyInput, match=r"budget\.trials: expected a number of 64 bits at most"):
        Study.from_tree({**tree, "budget": {"trials": 10**23}})


def test_an_experiment_needs_a_name() -> None:
    with pytest.raises(FaultyInput, match=r"tracking\.experiment: .*at least 1 character"):
        Study.from_tree({"data": {"path": "digits"}, "tracking": {"experiment": ""}})


def test_a_long_value_is_quoted_by_its_ends() -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe.from_tree({"loop": {"epochs": list(range(10_000))}})
    assert "[0, 1, 2" in str(caught.value)
    assert "9998, 9999]" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_many_faults_are_counted_and_the_first_are_listed() -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe.from_tree({f"field{number}": 1 for number in range(1000)})
    lines = str(caught.value).splitlines()
    assert (lines[0], lines[-1]) == ("recipe: 1000 faults", "  and 950 more")
    assert len(caught.value.faults) == 1000


def test_a_message_holds_nothing_that_a_terminal_obeys() -> None:
    assert str(UserError("a\x1b[31mred\nb\udcff")) == "a\\x1b[31mred\nb\\udcff"
    assert shown("Blüte 花 ✓") == "Blüte 花 ✓"
    assert len(quoted("x" * 10_000)) < 250


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (10**400, r"facts\.parameters: expected a number of 64 bits at most"),
        ([[2**63]], r"facts\.parameters\.0\.0: expected a number of 64 bits"),
        ("\ud800", r"facts\.parameters: expected text in UTF-8"),
        ({"\ud800": 1}, r"facts\.parameters: expected text in UTF-8"),
        ({1, 2}, "not plain data: .*set"),
    ],
)
def test_a_study_from_python_is_plain_data_too(value: object, message: str) -> None:
    with pytest.raises(FaultyInput, match=message):
        Study.from_tree({"data": {"path": "digits"}, "facts": {"parameters": value}})


def test_a_tree_that_holds_itself_is_refused() -> None:
    tree: dict[str, object] = {"data": {"path": "digits"}}
    tree["base"] = tree
    with pytest.raises(FaultyInput, match="base: is nested deeper than 32 levels, or holds itself"):
        Study.from_tree(tree)
    with pytest.raises(FaultyInput, match=r"nested deeper|holds itself|not plain"):
        Recipe.from_tree(tree)
