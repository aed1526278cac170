"""Tests the files under examples/, which a reader copies: they work, and their comments are true."""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from search.study import Study, read_study
from spaces.catalog.catalog import make_space
from spaces.facts import Facts
from trainable.recipe.yamlfile import read_tree

EXAMPLES = Path(__file__).parents[1] / "examples"


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def test_the_example_study_is_one_and_names_every_section() -> None:
    study = read_study(EXAMPLES / "study.yaml")
    written = set(read_tree(EXAMPLES / "study.yaml"))
    assert study.name == "flowers"
    assert written == set(Study.model_fields)


def test_what_the_example_study_does_not_call_otherwise_is_the_default() -> None:
    written = dict(leaves(read_tree(EXAMPLES / "study.yaml")))
    defaults = dict(leaves(Study.from_tree({"data": {"path": "flowers"}}).model_dump(mode="json")))
    others = {path for path, value in written.items() if path not in defaults or defaults[path] != value}
    text = (EXAMPLES / "study.yaml").read_text()
    said = {path for path in others if path.startswith(("base.", "space.overrides."))}
    for path in others - said - {"data.path"}:
        *sections, name = path.split(".")
        (line,) = [line for line in text.splitlines() if line.startswith(f"{'  ' * len(sections)}{name}: ")]
        assert "# default: " in line or "; default: " in line, line


def test_the_ranges_of_the_example_study_fit_its_space() -> None:
    study = read_study(EXAMPLES / "study.yaml")
    facts = Facts(
        train_images=3000,
        classes=5,
        class_balance=0.8,
        channels=3,
        image_size=64,
        flips=("horizontal",),
        parameters=270_000,
        epochs=study.budget.epochs,
        cpus=1,
        gpus=0,
        gpu_memory_bytes=None,
    )
    pinned = frozenset(study.pinned)
    space = make_space(
        study.space.name or "document", study.base_recipe(), pinned, facts, study.space.overrides
    )
    searched = {dimension.path for dimension in space.dimensions}
    assert set(study.space.overrides) <= searched
    assert not pinned & searched


def test_the_example_of_an_own_model_trains_it() -> None:
    train = runpy.run_path(str(EXAMPLES / "own_model.py"))["train"]
    result, scores = train(epochs=2)
    assert result.epoch == 2
    assert result.val_accuracy > 0.8
    assert scores["test_accuracy"] > 0.8


@pytest.mark.slow("trains a network")
def test_the_example_of_an_own_model_looks_at_it_first() -> None:
    look_first = runpy.run_path(str(EXAMPLES / "own_model.py"))["look_first"]
    findings = look_first(seconds=10.0)
    assert {each.check for each in findings} >= {"gradients", "one batch", "duplicates"}
    assert not [each for each in findings if each.level in ("error", "warning")]
