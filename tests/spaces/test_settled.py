"""Tests that a space that was written as data is the same when it is read, whatever the rules say by then."""

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest

from spaces.catalog.catalog import NAMES, make_space
from spaces.catalog.explain import reasons, space_rows
from spaces.domains import SpaceError, Value
from spaces.facts import Facts
from spaces.rules import optimizers, rates, regularisation
from spaces.settled import space_from, tree_of
from spaces.space import Space
from tests.spaces.small_facts import base_recipe, digits_facts, imagenet_facts

FACTS = [
    digits_facts(),
    digits_facts(epochs=3, train_images=120, lr_band=(0.3, 2.0)),
    imagenet_facts(),
    imagenet_facts(attention=True, largest_micro_batch=4096),
    imagenet_facts(train_images=1_000, parameters=23_528_522, epochs=30, pretrained=True),
]
OVERRIDES: list[Mapping[str, Any]] = [
    {},
    {"loop.batch_size": {"rule": True}, "schedule.kind": {"rule": True}},
    {"loop.batch_size": {"int_log": [8, 64]}, "optimizer.kind": {"choice": ["sgd", "adam_then_sgd"]}},
    {
        "regularisation.clipping.kind": {"rule": True},
        "regularisation.clipping.max_norm": {"prior": 1.0, "confidence": "low"},
        "loop.micro_batch": {"choice": [None, 8]},
    },
    {
        "optimizer.kind": {"choice": ["sgd", "adamw"], "weights": [1, 2]},
        "optimizer.beta1": {"uniform": [0.5, 0.9]},
        "model.freeze_norm": {"fixed": True},
    },
]


def space_of(name: str, facts: Facts, overrides: Mapping[str, Any]) -> Space:
    weights = {"model__weights": "a.safetensors"} if name == "finetune" else {}
    if name == "finetune":
        facts = facts.model_copy(update={"pretrained": True})
    return make_space(name, base_recipe(facts, **weights), frozenset({"data.path"}), facts, overrides)


def read_again(space: Space) -> Space:
    return space_from(json.loads(json.dumps(tree_of(space))))


def draws(space: Space) -> list[dict[str, Value]]:
    chance = random.Random(7)
    return [space.sample(lambda dimension: chance.random()) for _ in range(20)]


@pytest.mark.parametrize("overrides", OVERRIDES)
@pytest.mark.parametrize("facts", FACTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_space_that_is_read_is_the_one_that_was_written(
    name: str, facts: Facts, overrides: Mapping[str, Any]
) -> None:
    space = space_of(name, facts, overrides)
    again = read_again(space)
    assert again == space
    assert draws(again) == draws(space)
    assert space_rows(again) == space_rows(space)
    for values in draws(space)[:3]:
        assert again.priors(values) == space.priors(values)
        assert reasons(again.recipe(values), again) == reasons(space.recipe(values), space)


def test_a_rule_that_changes_later_changes_nothing_in_a_space_that_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = space_of("document", imagenet_facts(), {})
    written = json.dumps(tree_of(space))
    drawn, rows = draws(space), space_rows(space)
    monkeypatch.setattr(rates, "IMAGENET_IMAGES", 2_000_000)
    monkeypatch.setattr(optimizers, "DECADES", 1.0)
    monkeypatch.setattr(regularisation, "RESNET50", 100_000_000)
    changed = space_of("document", imagenet_facts(), {})
    assert draws(changed) != drawn
    assert space_rows(changed) != rows
    again = space_from(json.loads(written))
    assert again == space
    assert draws(again) == drawn
    assert space_rows(again) == rows
    assert [reasons(again.recipe(each), again) for each in drawn[:3]] == [
        reasons(space.recipe(each), space) for each in drawn[:3]
    ]


FIRST, PRIOR = "dimensions/0", "dimensions/0/beliefs/prior"


@pytest.mark.parametrize(
    ("path", "to", "message"),
    [
        ("base", [], "base: expected a mapping, got []"),
        ("base/loop/epochs", 0, "base.loop.epochs: expected"),
        ("odd", 1, "expected the fields base, pins, dimensions, own, rule_values, got base,"),
        ("pins", [1], "pins.0: expected a text, got 1"),
        ("own/optimizer.kind", [1], "own.optimizer.kind: expected numbers, words"),
        ("own/loop.seed", 1, "loop.seed: is no dimension here"),
        ("dimensions", {}, "dimensions: expected a list, got {}"),
        (f"{FIRST}/domain", {"choice": 1}, "dimensions.0.domain.choice: expected a list"),
        (f"{FIRST}/domain", {"log": [2, 1]}, "dimensions.0.domain.log: expected low < high"),
        (f"{FIRST}/domain", {"int": [1]}, "dimensions.0.domain.int: expected [low, high]"),
        (f"{FIRST}/domain", {"odd": 1}, "dimensions.0.domain: expected one of uniform"),
        (f"{FIRST}/when", {}, "dimensions.0.when: expected the fields path, values, got none"),
        (f"{FIRST}/beliefs", None, "dimensions.0.beliefs: expected a mapping, got None"),
        (PRIOR, {"centre": "1", "confidence": "low"}, "prior.centre: expected a number, got '1'"),
        (PRIOR, {"centre": 1, "confidence": "odd"}, "prior.confidence: expected one of low, medium, high"),
        (PRIOR, {"weights": [0]}, "dimensions.0.beliefs.prior.weights: expected weights above 0, got 0"),
        (PRIOR, {"weights": [1.0]}, "optimizer.kind: expected a weight for each of the 4 options, got 1"),
        (PRIOR, {"weights": [10**400]}, "prior.weights.0: expected a number of 64 bits at most"),
        ("rule_values/0/reason", None, "rule_values.0.reason: expected a text, got None"),
        ("rule_values/0/path", "adaptive", "rule_values.0.path: expected a field of a recipe, got"),
    ],
)
def test_damage_is_reported_with_its_path(path: str, to: Any, message: str) -> None:
    tree = json.loads(json.dumps(tree_of(space_of("document", imagenet_facts(), {}))))
    section, *keys = tree, *path.split("/")
    for key in keys[:-1]:
        section = section[int(key) if isinstance(section, list) else key]
    section[keys[-1]] = to
    with pytest.raises(SpaceError) as caught:
        space_from(tree, "space.json")
    assert str(caught.value).startswith("space.json: 1 fault")
    assert message in str(caught.value)


@pytest.mark.parametrize("tree", [None, [], "odd", {}])
def test_what_is_no_space_is_refused(tree: Any) -> None:
    with pytest.raises(SpaceError, match="expected"):
        space_from(tree)
