import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from spaces.domains import Choice, Domain, Float, Integer, SpaceError, Value
from spaces.priors import Prior
from spaces.space import Dimension, Space, When
from spaces.validity import check_recipes
from trainable.recipe import Recipe


def dimension(path: str, domain: Domain, when: When | None = None, variant: str = "") -> Dimension:
    return Dimension(path, domain, "for the test", "none", when, variant)


KIND = dimension("optimizer.kind", Choice(("sgd", "adamw")))
SGD, ADAMW = When("optimizer.kind", ("sgd",)), When("optimizer.kind", ("adamw",))
RATES = (
    dimension("optimizer.lr", Float(0.01, 1.0, log=True), SGD, "sgd"),
    dimension("optimizer.lr", Float(1e-4, 1e-2, log=True), ADAMW, "adamw"),
)
MOMENTUM = dimension("optimizer.momentum", Float(0.5, 0.95), SGD)
DIMENSIONS = (KIND, *RATES, MOMENTUM)
OWN: Mapping[str, Value] = {"optimizer.kind": "sgd", "optimizer.lr": 0.1, "optimizer.momentum": 0.9}
ADAM: Mapping[str, Value] = {"optimizer.kind": "adamw", "optimizer.lr": 1e-3}


def space(
    dimensions: Sequence[Dimension] = DIMENSIONS,
    own: Mapping[str, Value] = OWN,
    pins: frozenset[str] = frozenset(),
    **base: Any,
) -> Space:
    values = {path.replace("__", "."): value for path, value in base.items()}
    found = Space(Recipe().with_values(values), tuple(dimensions), own, pins)
    check_recipes(found)
    return found


def test_dimensions_are_drawn_in_order_and_only_where_their_condition_holds() -> None:
    seen: list[str] = []

    def draw(each: Dimension, prior: Prior) -> Value:
        seen.append(each.name)
        return {"optimizer.kind": "adamw"}.get(each.path, 1e-3)

    assert space().define(draw) == ADAM
    assert seen == ["optimizer.kind", "optimizer.lr[adamw]"]


def test_a_condition_is_looked_up_in_the_base_where_nothing_was_drawn() -> None:
    held = space(dimensions=[*RATES, MOMENTUM], own={"optimizer.lr": 1e-3}, optimizer__kind="adamw")
    assert held.define(lambda each, _: 1e-3) == {"optimizer.lr": 1e-3}


def test_a_path_decides_what_exists_under_it_and_what_is_believed_after_it() -> None:
    varied = space()
    assert varied.decides("optimizer.kind")
    assert not varied.decides("optimizer.momentum")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (OWN, {"optimizer.kind": "sgd", "optimizer.lr[sgd]": 0.1, "optimizer.momentum": 0.9}),
        (ADAM, {"optimizer.kind": "adamw", "optimizer.lr[adamw]": 1e-3}),
    ],
)
def test_values_by_path_have_a_name_each(values: dict[str, Value], named: dict[str, Value]) -> None:
    assert space().named(values) == named


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({**ADAM, "optimizer.momentum": 0.9}, "optimizer.momentum: is no dimension here"),
        ({"optimizer.kind": "adamw"}, "optimizer.lr: expected a value, got none"),
    ],
)
def test_values_that_do_not_belong_together_have_no_names(values: dict[str, Value], fault: str) -> None:
    with pytest.raises(SpaceError, match=fault):
        space().named(values)


def test_a_trial_that_switches_the_optimizer_takes_its_defaults_and_keeps_the_pins() -> None:
    pinned = space(
        dimensions=[KIND, MOMENTUM],
        own={"optimizer.kind": "sgd", "optimizer.momentum": 0.9},
        pins=frozenset({"optimizer.lr", "loop.workers"}),
        optimizer__lr=0.3,
        optimizer__weight_decay=0.5,
        loop__workers=2,
    )
    optimizer = pinned.recipe({"optimizer.kind": "adamw"}).optimizer
    assert (optimizer.kind, optimizer.lr, optimizer.weight_decay) == ("adamw", 0.3, 0.02)
    assert pinned.recipe({"optimizer.kind": "sgd", "optimizer.momentum": 0.8}).optimizer.weight_decay == 0.5


def test_a_pin_that_a_switched_kind_lacks_is_refused_and_says_what_to_do() -> None:
    with pytest.raises(SpaceError) as caught:
        space(
            dimensions=[KIND, *RATES],
            own={"optimizer.kind": "sgd", "optimizer.lr": 0.1},
            pins=frozenset({"optimizer.momentum"}),
        )
    (fault,) = caught.value.faults
    assert fault.path == "optimizer.momentum"
    assert "is pinned, but a trial may set optimizer.kind to adamw" in fault.message
    assert "pin optimizer.kind too" in fault.message


@pytest.mark.parametrize(
    ("domain", "own", "path", "message"),
    [
        (Float(0.5, 1.0), 0.9, "optimizer.momentum", "1 is refused by the recipe: optimizer.momentum: exp"),
        (Choice(("sgd", "lion")), "sgd", "optimizer.kind", "lion is refused by the recipe: optimizer.kind"),
        (Integer(0, 20), 0, "schedule.warmup_epochs", "schedule.warmup_epochs 20 must be below loop.epochs"),
        (Float(0.1, 0.2), 0.1, "optimizer.lrr", "0.1 is refused by the recipe: optimizer.lrr: unknown key"),
        (Float(0.1, 0.2), 0.1, "loop.seed", "expected a valid integer"),
    ],
)
def test_ends_that_the_recipe_refuses_are_refused_in_its_words(
    domain: Domain, own: Value, path: str, message: str
) -> None:
    with pytest.raises(SpaceError) as caught:
        space(dimensions=[dimension(path, domain)], own={path: own})
    assert {fault.path for fault in caught.value.faults} == {path}
    assert message in str(caught.value)


def test_ends_that_exclude_each_other_are_refused_together() -> None:
    scales = [
        dimension("augmentation.crop.scale_min", Float(0.1, 0.6)),
        dimension("augmentation.crop.scale_max", Float(0.5, 1.0)),
    ]
    own = {"augmentation.crop.scale_min": 0.1, "augmentation.crop.scale_max": 1.0}
    with pytest.raises(SpaceError, match=r"0\.6 with augmentation\.crop\.scale_max 0\.5 is refused"):
        space(dimensions=scales, own=own, augmentation__crop__kind="resized")


def test_ends_under_one_condition_that_exclude_each_other_are_refused_together() -> None:
    resized = When("augmentation.crop.kind", ("resized",))
    crops = [
        dimension("augmentation.crop.kind", Choice(("none", "resized"))),
        dimension("augmentation.crop.scale_min", Float(0.1, 0.6), resized),
        dimension("augmentation.crop.scale_max", Float(0.5, 1.0), resized),
    ]
    with pytest.raises(SpaceError, match=r"0\.6 with augmentation\.crop\.scale_max 0\.5 is refused"):
        space(dimensions=crops, own={"augmentation.crop.kind": "none"}, augmentation__crop__kind="none")


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (
            dimension("schedule.warmup_epochs", Float(0.0, 15.0)),
            dimension("loop.epochs", Integer(10, 20)),
            "15 with loop.epochs 10 is refused: schedule.warmup_epochs 15 must be below loop.epochs 10",
        ),
        (
            dimension("loop.micro_batch", Integer(16, 64)),
            dimension("loop.batch_size", Integer(32, 128)),
            "64 with loop.batch_size 32 is refused",
        ),
    ],
)
def test_ends_of_fields_that_only_the_whole_recipe_compares_are_refused_together(
    one: Dimension, other: Dimension, message: str
) -> None:
    own = {one.path: 8 if "batch" in one.path else 0.0, other.path: 20 if "epochs" in other.path else 128}
    with pytest.raises(SpaceError, match=re.escape(message)):
        space(dimensions=[one, other], own={**own}, loop__batch_size=128)


def sections(spec: type[BaseModel]) -> list[type[BaseModel]]:
    """Return every section of a recipe, also those of unions and those within sections, itself first."""
    return [spec, *(deeper for parts in parts_of(spec) for each in parts for deeper in sections(each))]


def parts_of(spec: type[BaseModel]) -> list[list[type[BaseModel]]]:
    """Return the sections that each field may hold, for the fields that hold one."""
    held = [_members(field.annotation) for field in spec.model_fields.values()]
    return [each for each in held if each]


def _members(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [each for part in get_args(annotation) for each in _members(part)]


def test_only_the_whole_recipe_compares_its_sections() -> None:
    """The Recipe's own validator tries ends in two sections; no other validator may compare sections."""
    comparing = {
        each.__name__
        for each in sections(Recipe)
        if each.__pydantic_decorators__.model_validators and len(parts_of(each)) > 1
    }
    assert comparing == {"Recipe"}
    assert list(Recipe.__pydantic_decorators__.model_validators) == ["fields_agree"]


@pytest.mark.parametrize(
    ("dimensions", "message"),
    [
        ([KIND, RATES[0], RATES[0]], "got 'optimizer.lr[sgd]' again"),
        ([MOMENTUM, KIND], "exists when optimizer.kind is sgd, which is drawn later"),
    ],
)
def test_names_twice_and_conditions_on_later_draws_are_refused(
    dimensions: list[Dimension], message: str
) -> None:
    with pytest.raises(SpaceError, match=re.escape(message)):
        space(dimensions=dimensions)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"optimizer.kind": "sgd", "optimizer.lr": 0.1}, "optimizer.momentum: expected a value, got none"),
        ({**OWN, "loop.seed": 1}, "loop.seed: is no dimension here"),
        ({**OWN, "optimizer.lr": -0.1}, "optimizer.lr: expected greater than 0, got -0.1"),
        ({"optimizer.kind": "lamb"}, "expected one of sgd, adamw in the first trial, got lamb"),
    ],
)
def test_a_first_trial_that_cannot_be_is_refused(own: dict[str, Value], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        space(own=own)


def test_the_first_trial_may_lie_outside_a_range() -> None:
    narrow = [KIND, dimension("optimizer.lr", Float(0.3, 0.5))]
    assert (
        space(dimensions=narrow, own={"optimizer.kind": "sgd", "optimizer.lr": 0.1}).own["optimizer.lr"]
        == 0.1
    )
