"""Tests what the rules say of a teacher, and that they say nothing without one."""

from __future__ import annotations

from typing import Any

import pytest

from spaces.catalog.catalog import NAMES, make_space
from spaces.domains import Float, SpaceError
from spaces.facts import Facts
from spaces.priors import Normal
from spaces.rules.distillation import HALF, MOST, gain_to_expect, temperatures, weights
from spaces.space import Dimension, Space
from tests.spaces.small_facts import base_recipe, digits_facts, imagenet_facts

TEMPERATURE, WEIGHT = "distillation.temperature", "distillation.weight"


def taught(facts: Facts, times: float = 10.0) -> Facts:
    return facts.model_copy(update={"teacher_parameters": round(facts.parameters * times)})


def space_of(name: str = "document", overrides: Any = None, **values: Any) -> Space:
    facts = taught(digits_facts())
    if name == "finetune":
        values["model__weights"] = "a.safetensors"
    base = base_recipe(facts, distillation__teacher="teacher", **values)
    pins = frozenset({"data.path", "distillation.teacher", *(path.replace("__", ".") for path in values)})
    return make_space(name, base, pins, facts, overrides or {})


def paths(space: Space) -> set[str]:
    return {each.path for each in space.dimensions}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "quick"])
def test_temperature_and_weight_vary_where_there_is_a_teacher(name: str) -> None:
    assert {TEMPERATURE, WEIGHT} <= paths(space_of(name))


def test_hints_have_no_temperature() -> None:
    found = paths(space_of(distillation__kind="features"))
    assert WEIGHT in found
    assert TEMPERATURE not in found


@pytest.mark.parametrize("name", NAMES)
def test_without_a_teacher_nothing_of_it_varies(name: str) -> None:
    weights = {"model__weights": "a.safetensors"} if name == "finetune" else {}
    space = make_space(name, base_recipe(digits_facts(), **weights), frozenset(), digits_facts(), {})
    assert not [path for path in paths(space) if path.startswith("distillation")]
    assert not [path for path, _ in space.base.leaves() if path.startswith("distillation")]


def test_what_a_person_wrote_does_not_vary() -> None:
    space = space_of(distillation__temperature=2.0)
    assert TEMPERATURE not in paths(space)
    assert space.recipe(space.own).get(TEMPERATURE) == 2.0


def test_a_kind_that_varies_keeps_the_teacher() -> None:
    space = space_of(overrides={"distillation.kind": {"choice": ["logits", "dkd", "features"]}})
    for kind in ("logits", "dkd", "features"):
        recipe = space.recipe({"distillation.kind": kind})
        assert recipe.get("distillation.teacher") == "teacher"
        assert recipe.get("distillation.kind") == kind
    assert {str(each.when) for each in space.dimensions if each.path == TEMPERATURE} == {
        "distillation.kind is logits or dkd"
    }


@pytest.mark.parametrize(
    ("path", "written", "message"),
    [
        ("distillation.teacher", {"choice": ["a", "b"]}, "can never vary: trials learn from one teacher"),
        ("distillation.model.width", {"int": [8, 16]}, "can never vary: it names the network"),
        ("distillation.alpha", {"uniform": [0.5, 2.0]}, "exists when distillation.kind is dkd"),
        (WEIGHT, {"uniform": [0.5, 2.0]}, "expected less than or equal to 1"),
    ],
)
def test_what_a_teacher_cannot_have_is_refused(path: str, written: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        space_of(overrides={path: written})


@pytest.mark.parametrize("path", [TEMPERATURE, WEIGHT])
@pytest.mark.parametrize("written", [{"rule": True}, {"uniform": [0.5, 0.9]}, {"prior": 0.5}, {"fixed": 0.5}])
def test_a_range_of_a_teacher_that_nobody_named_is_one_clear_fault(path: str, written: Any) -> None:
    with pytest.raises(SpaceError) as caught:
        make_space("document", base_recipe(digits_facts()), frozenset(), digits_facts(), {path: written})
    (fault,) = caught.value.faults
    assert fault.path == f"space.overrides.{path}"
    assert "teacher" in fault.message


def test_the_weight_rises_with_the_images_that_a_run_sees() -> None:
    short, middle, long = (
        weights(taught(digits_facts(train_images=images, epochs=epochs)), {})
        for images, epochs in ((1_000, 10), (10_000, 30), (100_000, 300))
    )
    centres = [each.prior.centre for each in (short, middle, long) if each and isinstance(each.prior, Normal)]
    assert centres == sorted(set(centres))
    assert (centres[0], centres[-1]) == (HALF, MOST)


@pytest.mark.parametrize("name", ["document", "wide"])
def test_hints_leave_the_labels_a_share_and_probabilities_need_not(name: str) -> None:
    space = space_of(name, {"distillation.kind": {"choice": ["logits", "dkd", "features"]}})
    most = {str(each.when): highest(each) for each in space.dimensions if each.path == WEIGHT}
    assert most["distillation.kind is logits or dkd"] == 1.0
    assert 0.9 <= most["distillation.kind is features"] < 1.0
    alone = space_of(name, distillation__kind="features")
    (weight,) = [each for each in alone.dimensions if each.path == WEIGHT]
    assert weight.name == WEIGHT
    assert highest(weight) < 1.0


def highest(dimension: Dimension) -> float:
    assert isinstance(dimension.domain, Float)
    return dimension.domain.high


def test_a_written_weight_that_hints_cannot_have_is_refused_where_they_may_be_drawn() -> None:
    overrides = {"distillation.kind": {"choice": ["logits", "features"]}, WEIGHT: {"uniform": [0.5, 1.0]}}
    with pytest.raises(SpaceError, match="expected less than 1 with kind features"):
        space_of(overrides=overrides)


def test_the_temperature_lies_around_that_of_the_papers() -> None:
    found = temperatures(taught(imagenet_facts()), {})
    assert found is not None
    assert found.domain == Float(1.0, 20.0, log=True)
    assert found.prior == Normal(4.0, "medium")


@pytest.mark.parametrize(("times", "pays"), [(0.5, False), (1.9, False), (2.0, True), (50.0, True)])
def test_a_larger_teacher_is_expected_to_pay(times: float, pays: bool) -> None:
    found = gain_to_expect(taught(digits_facts(parameters=10_000, epochs=100), times))
    assert found is not None
    assert found.what is pays
    assert f"{times:.3g} times the student's parameters" in found.reason
    assert "arXiv" in found.source
    assert gain_to_expect(digits_facts()) is None


def test_short_runs_are_said_to_gain_nothing() -> None:
    short = gain_to_expect(taught(digits_facts(epochs=60)))
    assert short is not None
    assert not short.what
    assert "gained nothing that differs from luck" in short.reason
