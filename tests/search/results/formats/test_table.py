"""One walk reads the table of any program: what it says, what is lost, and of which kinds of a section."""

from __future__ import annotations

from typing import Any

import pytest

from search.results.formats.table import FieldRow, filled, lost, only, only_each, says, where
from tests.search.results.formats.winners import recipe_of, winner_of

SGD = winner_of(recipe_of(optimizer__kind="sgd", optimizer__momentum=0.8))
ADAMW = winner_of(recipe_of(optimizer__kind="adamw"))


def said(*table: FieldRow, skeleton: dict[str, Any] | None = None) -> dict[str, Any]:
    return filled(table, SGD, skeleton).arguments


def listed(*table: FieldRow) -> list[str]:
    return list(filled(table, SGD).lines())


def test_a_name_takes_the_field_and_a_function_is_asked_with_it() -> None:
    table = (
        says("optimizer.momentum", "momentum", {"opt": "sgd", "doubled": lambda value, _: 2 * value}),
        says("loop", lambda loop, winner: {"steps": loop.epochs * winner.steps}),
    )
    assert said(*table) == {"momentum": 0.8, "opt": "sgd", "doubled": 1.6, "steps": 40}


def test_a_row_is_of_the_kinds_that_it_names() -> None:
    table = (
        says("optimizer[sgd|lars].momentum", "momentum"),
        says("optimizer[adamw].beta1", "beta"),
        lost("optimizer[adamw]", "unknown"),
    )
    assert said(*table) == {"momentum": 0.8}
    assert listed(*table) == []
    other = filled(table, ADAMW)
    assert other.arguments == {"beta": 0.9}
    assert list(other.lines()) == ["optimizer: kind adamw: unknown"]


def test_names_lead_into_a_skeleton_which_stays_as_it_is_and_an_argument_keeps_its_place() -> None:
    skeleton = {"part": {"rate": None, "steps": ["first"]}, "last": 1}
    table = (
        says("optimizer.momentum", "momentum", "part.rate"),
        says("loop.epochs", {"part.steps+": lambda epochs, _: [epochs]}),
        says("loop.seed", "last"),
    )
    found = said(*table, skeleton=skeleton)
    assert found == {"part": {"rate": 0.8, "steps": ["first", 4]}, "last": 0, "momentum": 0.8}
    assert list(found) == ["part", "last", "momentum"]
    assert skeleton == {"part": {"rate": None, "steps": ["first"]}, "last": 1}


def test_what_is_lost_stands_in_the_order_of_the_recipe_with_its_value_and_why() -> None:
    table = (
        only("loop.sampling", "balanced", "always balanced"),
        lost("optimizer.momentum", lambda value, _: f"half of it, {value / 2}"),
        says("optimizer.lr", "lr", but="at a batch of 32"),
        lost("optimizer.weight_decay", "never", unless=lambda value, _: value < 1),
        *only_each("model", lambda value: f"{value} always", depth=8, width=32),
    )
    assert listed(*table) == [
        "model.width: 16: 32 always",
        "optimizer.lr: 0.1: at a batch of 32",
        "optimizer.momentum: 0.8: half of it, 0.4",
        "loop.sampling: natural: always balanced",
    ]


@pytest.mark.parametrize(("images", "named"), [(None, {}), ("parts", {"seed": 0})])
def test_rows_count_under_a_condition(images: str | None, named: dict[str, int]) -> None:
    table = where(lambda winner: winner.images is not None, says("loop.seed", "seed"))
    assert filled(table, winner_of(recipe_of(), images=images)).arguments == named
