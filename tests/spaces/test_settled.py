"""Tests that a space that was written as data is the same when it is read, whatever the rules say by then."""

import json
import random
from collections.abc import Callable, Mapping
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


def changed_at(*path: str | int, to: Any) -> Callable[[Any], None]:
    def change(tree: Any) -> None:
        for part in path[:-1]:
            tree = tree[part]
        tree[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (changed_at("base", to=[]), "base: expected a mapping, got []"),
        (changed_at("base", "loop", "epochs", to=0), "base.loop.epochs: expected"),
        (changed_at("odd", to=1), "expected the fields base, pins, dimensions, own, rule_values, got base,"),
        (changed_at("pins", to=[1]), "pins.0: expected a text, got 1"),
        (changed_at("own", "optimizer.kind", to=[1]), "own.optimizer.kind: expected numbers, words"),
        (changed_at("own", "loop.seed", to=1), "loop.seed: is no dimension here"),
        (changed_at("dimensions", to={}), "dimensions: expected a list, got {}"),
        (
            changed_at("dimensions", 0, "domain", to={"choice": 1}),
            "dimensions.0.domain.choice: expected a list",
        ),
        (
            changed_at("dimensions", 0, "domain", to={"log": [2, 1]}),
            "dimensions.0.domain.log: expected low < high",
        ),
        (
            changed_at("dimensions", 0, "domain", to={"int": [1]}),
            "dimensions.0.domain.int: expected [low, high]",
        ),
        (
            changed_at("dimensions", 0, "domain", to={"odd": 1}),
            "dimensions.0.domain: expected one of uniform",
        ),
        (
            changed_at("dimensions", 0, "when", to={}),
            "dimensions.0.when: expected the fields path, values, got none",
        ),
        (
            changed_at("dimensions", 0, "beliefs", to=None),
            "dimensions.0.beliefs: expected a mapping, got None",
        ),
        (
            changed_at("dimensions", 0, "beliefs", "prior", to={"centre": "1", "confidence": "low"}),
            "dimensions.0.beliefs.prior.centre: expected a number, got '1'",
        ),
        (
            changed_at("dimensions", 0, "beliefs", "prior", to={"centre": 1, "confidence": "odd"}),
            "dimensions.0.beliefs.prior.confidence: expected one of low, medium, high, got 'odd'",
        ),
        (
            changed_at("dimensions", 0, "beliefs", "prior", to={"weights": [0]}),
            "dimensions.0.beliefs.prior.weights: expected weights above 0, got 0",
        ),
        (
            changed_at("dimensions", 0, "beliefs", "prior", to={"weights": [1.0]}),
            "optimizer.kind: expected a weight for each of the 4 options, got 1",
        ),
        (
            changed_at("dimensions", 0, "beliefs", "prior", to={"weights": [10**400]}),
            "dimensions.0.beliefs.prior.weights.0: expected a number of 64 bits at most",
        ),
        (changed_at("rule_values", 0, "reason", to=None), "rule_values.0.reason: expected a text, got None"),
        (
            changed_at("rule_values", 0, "path", to="adaptive"),
            "rule_values.0.path: expected a field of a recipe, got 'adaptive'",
        ),
    ],
)
def test_damage_is_reported_with_its_path(damage: Callable[[Any], None], message: str) -> None:
    tree = json.loads(json.dumps(tree_of(space_of("document", imagenet_facts(), {}))))
    damage(tree)
    with pytest.raises(SpaceError) as caught:
        space_from(tree, "space.json")
    assert str(caught.value).startswith("space.json: 1 fault")
    assert message in str(caught.value)


@pytest.mark.parametrize("tree", [None, [], "odd", {}])
def test_what_is_no_space_is_refused(tree: Any) -> None:
    with pytest.raises(SpaceError, match="expected"):
        space_from(tree)
