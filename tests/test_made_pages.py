"""Tests what is made from the code, or must follow it: JSON Schemas, and the sections that messages name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

import make_pages
from trainable.checks.finding import CheckName, Finding
from trainable.errors import FaultyInput, UserError
from trainable.recipe.yamlfile import read_tree

ROOT = Path(__file__).parents[1]
STUDY, RECIPE = make_pages.study_schema(), make_pages.recipe_schema()
WRITTEN_BY_SEARCHES = {"Provenance", "Dropped", "Finalized", "FreshRuns", "Simplified", "Verification"}


def refused(schema: dict[str, Any], tree: object) -> list[str]:
    """Return the paths that a schema refuses."""
    faults = jsonschema.Draft202012Validator(schema).iter_errors(tree)
    return [".".join(map(str, fault.path)) for fault in faults]


@pytest.mark.parametrize("name", make_pages.SCHEMAS)
def test_the_schema_in_the_documents_is_that_of_the_code(name: str) -> None:
    made = make_pages.as_text(make_pages.SCHEMAS[name]())
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == made, "run: python docs/make_pages.py"


@pytest.mark.parametrize("schema", [STUDY, RECIPE], ids=["study", "recipe"])
def test_a_schema_is_one(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)


def test_the_example_and_an_exported_recipe_fit_their_schemas() -> None:
    assert refused(STUDY, read_tree(ROOT / "examples" / "study.yaml")) == []
    assert refused(RECIPE, read_tree(ROOT / "tests" / "net" / "best.yaml")) == []


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ({}, ""),  # without data
        ({"data": {"path": "a"}, "budget": {"trial": 3}}, "budget"),
        ({"data": {"path": "a"}, "budget": {"trials": "many"}}, "budget.trials"),
        ({"data": {"path": "a"}, "base": {"optimiser": {"lr": 0.1}}}, "base"),
    ],
)
def test_an_editor_marks_what_is_misspelt_or_of_a_wrong_type(tree: dict[str, Any], path: str) -> None:
    assert refused(STUDY, tree) == [path]


@pytest.mark.parametrize(
    "base", [{"optimizer": {"lr": 0.1}}, {"optimizer.lr": 0.1}, {"distillation": {"teacher": "a"}}]
)
def test_a_study_may_have_parts_of_a_recipe_nested_or_dotted(base: dict[str, Any]) -> None:
    assert refused(STUDY, {"data": {"path": "a"}, "base": base}) == []


def undescribed(schema: dict[str, Any]) -> Iterator[str]:
    """Yield the fields that an editor would show without a word."""
    sections = {"": schema, **schema["$defs"]}
    for name, section in sections.items():
        for field, asked in section.get("properties", {}).items():
            target = sections.get(asked.get("$ref", "").removeprefix("#/$defs/"), {})
            said = asked.get("description") or (target.get("description") if target else None)
            if not said and field != "kind" and name not in WRITTEN_BY_SEARCHES:
                yield f"{name}.{field}"


@pytest.mark.parametrize("schema", [STUDY, RECIPE], ids=["study", "recipe"])
def test_every_field_that_a_person_writes_says_what_it_is_for(schema: dict[str, Any]) -> None:
    assert {*undescribed(schema)} - {".provenance"} == set()


def headings(page: str) -> set[str]:
    """Return the anchors of a page's sections."""
    found = re.findall(r"^##+ (.+)$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE)
    return {f"#{each.lower().replace(' ', '-')}" for each in found}


def test_every_check_has_a_section_that_its_table_names() -> None:
    sections = {Finding(name, "warning", "").section for name in get_args(CheckName)}
    assert sections - headings("checks.md") == set()


def said() -> Iterator[str]:
    """Yield, as a pattern, each text of a check that has more than three words, whatever is filled in."""
    for file in [ROOT / "trainable/check.py", *(ROOT / "trainable").rglob("checks/*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            words = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
            if len(re.findall(r"\w+", words)) > 3:
                yield re.escape(words).replace(r"\{\}", ".*?")


def test_the_section_of_a_check_is_whole_and_its_example_is_what_the_check_says() -> None:
    text = (ROOT / "docs/checks.md").read_text(encoding="utf-8")
    heads = "Looked at", "Speaks up", "Why it matters", "What helps", "It says, for example"
    examples = {}
    for section in text.split("\n### ")[1:]:
        name, _, body = section.partition("\n")
        assert tuple(re.findall(r"^- \*(.+?):\*", body, re.MULTILINE)) == heads, name
        examples[name] = " ".join(body.partition("example:* `")[2].partition("`")[0].split())
    patterns = [*said()]
    unsaid = {name for name, line in examples.items() if not any(re.search(each, line) for each in patterns)}
    assert unsaid == {"gradients"}  # torch says it


def errors_of(kind: type[UserError]) -> Iterator[type[UserError]]:
    for each in kind.__subclasses__():
        yield each
        yield from errors_of(each)


def test_every_section_that_an_error_names_is_there() -> None:
    for module in ("search.record.lock", "search.record.chain", "search.study", "search.retraining.runs"):
        import_module(module)
    named = {f"#{each.section}" for each in errors_of(UserError) if each is not FaultyInput and each.section}
    assert len(named) > 8
    assert named - headings("errors.md") == set()


@pytest.mark.slow("imports all that people import")
def test_the_names_to_import_are_described() -> None:
    page = make_pages.api_page()
    assert "### `search`\n\n```python\nsearch(" in page
    assert "- `study`: what `tunebook search` takes" in page
    assert re.findall(r"object at 0x|<function", page) == []
