"""Tests what a space refuses within the ranges that it can draw from."""

from time import process_time
from typing import Any

import pytest

from spaces.catalog.catalog import make_space
from spaces.domains import SpaceError
from spaces.space import Space
from tests.spaces.small_facts import base_recipe, digits_facts, imagenet_facts


def of(overrides: dict[str, Any]) -> Space:
    facts = digits_facts()
    return make_space("document", base_recipe(facts), frozenset(), facts, overrides)


@pytest.mark.parametrize(
    ("path", "written", "message", "choice"),
    [
        ("model.depth", {"int": [8, 20]}, "from 8 to 20", "8, 14, 20"),
        ("model.depth", {"int_log": [14, 32]}, "from 14 to 32", "14, 20, 32"),
        ("model.depth", {"uniform": [8, 20]}, "from 8 to 20", "8, 14, 20"),
        ("model.stem_stride", {"uniform": [1, 2]}, "from 1 to 2", "1, 2"),
    ],
)
def test_a_range_of_which_some_values_are_refused_is_reported_with_those_that_are_not(
    path: str, written: dict[str, Any], message: str, choice: str
) -> None:
    with pytest.raises(SpaceError) as caught:
        of({path: written})
    (fault,) = caught.value.faults
    assert fault.path == f"space.overrides.{path}"
    assert fault.message.startswith(message)
    assert fault.message.endswith(f"{{choice: [{choice}]}}")
    assert of({path: {"choice": [int(each) for each in choice.split(", ")]}})


@pytest.mark.parametrize(
    ("path", "written", "message"),
    [
        ("model.depth", {"int": [9, 20]}, "9 is refused by the recipe: model.depth: expected 8, 14, 20, 32"),
        ("model.width", {"int": [2, 20]}, "2 is refused by the recipe: model.width: expected greater than"),
    ],
)
def test_an_end_that_is_refused_is_reported_by_itself(
    path: str, written: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpaceError) as caught:
        of({path: written})
    (fault,) = caught.value.faults
    assert fault.message.startswith(message)


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("model.width", {"int": [4, 64]}),
        ("model.stem_stride", {"int": [1, 2]}),
        ("loop.batch_size", {"int_log": [8, 1024]}),
        ("optimizer.lr", {"log": [0.01, 1.0]}),
    ],
)
def test_a_range_whose_every_value_is_taken_makes_a_space(path: str, written: dict[str, Any]) -> None:
    assert path in {each.path for each in of({path: written}).dimensions}


def test_a_document_space_is_built_in_a_tenth_of_a_second() -> None:
    facts = imagenet_facts()
    base = base_recipe(facts)

    def seconds() -> float:
        begun = process_time()
        make_space("document", base, frozenset(), facts, {})
        return process_time() - begun

    assert min(seconds() for _ in range(3)) < 0.1
