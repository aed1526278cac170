"""Tests over many facts that whatever is drawn is a recipe, and its names lead back to its values."""

from typing import assert_never

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spaces.catalog.catalog import NAMES, make_space
from spaces.catalog.overrides import path_of
from spaces.conditions import scalars_of
from spaces.domains import Choice, Domain, Float, Integer, Value
from spaces.facts import Facts
from spaces.rules.rates import KINDS, OptimizerKind
from spaces.rules.rules import RULES
from spaces.space import Space
from tests.spaces.small_facts import base_recipe


def powers_of_ten(low: float, high: float) -> st.SearchStrategy[int]:
    return st.floats(low, high).map(lambda exponent: round(10**exponent))


FACTS = st.builds(
    Facts,
    train_images=powers_of_ten(2, 7),
    classes=st.integers(2, 1000),
    class_balance=st.floats(0.001, 1.0),
    channels=st.sampled_from((1, 3)),
    image_size=st.integers(8, 384),
    flips=st.sampled_from(((), ("horizontal",), ("horizontal", "vertical"))),
    parameters=powers_of_ten(4, 9),
    epochs=st.integers(1, 300),
    cpus=st.integers(1, 64),
    gpus=st.sampled_from((0.0, 0.5, 1.0)),
    pretrained=st.booleans(),
    attention=st.booleans(),
)
FRACTIONS = st.floats(0.0, 1.0, exclude_max=True)


def space_of(facts: Facts, **pins: Value) -> Space:
    """Return the space `document`; values by dotted path (`__` for the dot) are pinned."""
    pinned = frozenset(path.replace("__", ".") for path in pins)
    return make_space("document", base_recipe(facts, **pins), pinned, facts, {})


def in_domain(domain: Domain) -> st.SearchStrategy[Value]:
    match domain:
        case Float(low=low, high=high):
            return st.floats(low, high)
        case Integer(low=low, high=high):
            return st.integers(low, high)
        case Choice(options=options):
            return st.sampled_from(options)
        case _:
            assert_never(domain)


@pytest.mark.slow("draws many trials")
@given(facts=FACTS, data=st.data())
@settings(max_examples=50)
def test_every_draw_is_a_recipe(facts: Facts, data: st.DataObject) -> None:
    space = space_of(facts)
    values = space.define(lambda each, _: data.draw(in_domain(each.domain), label=each.name))
    recipe = space.recipe(values)
    assert {path: recipe.get(path) for path in values} == values
    assert recipe.schedule.warmup_epochs <= facts.epochs / 10
    assert recipe.loop.batch_size <= facts.train_images


@pytest.mark.slow("draws many trials")
@given(facts=FACTS, kind=st.sampled_from(KINDS), data=st.data())
@settings(max_examples=40)
def test_every_draw_around_a_pinned_optimizer_is_a_recipe(
    facts: Facts, kind: OptimizerKind, data: st.DataObject
) -> None:
    space = space_of(facts, optimizer__kind=kind)
    values = space.define(lambda each, _: data.draw(in_domain(each.domain), label=each.name))
    assert {"optimizer.lr", "optimizer.weight_decay"} <= values.keys()
    assert space.recipe(values).optimizer.kind == kind
    domains = {each.name: each.domain for each in space.dimensions}
    assert all(value in domains[name] for name, value in space.named(space.own).items())


@pytest.mark.slow("draws many trials")
@given(facts=FACTS, name=st.sampled_from(NAMES), data=st.data())
def test_every_draw_from_the_priors_of_every_named_space_is_one_of_its_trials(
    facts: Facts, name: str, data: st.DataObject
) -> None:
    pretrained = facts.model_copy(update={"pretrained": True}) if name == "finetune" else facts
    weights = {"model__weights": "a.safetensors"} if pretrained.pretrained else {}
    base = base_recipe(pretrained, **weights)
    space = make_space(name, base, frozenset({"model.weights"} if weights else ()), pretrained, {})
    values = space.sample(lambda each: data.draw(FRACTIONS, label=each.name))
    space.recipe(values)
    assert all(0.0 <= position <= 1.0 for position in space.encode(values).values())
    assert space.priors(values).keys() == space.named(values).keys()


@pytest.mark.slow("draws many trials")
@given(facts=FACTS, data=st.data())
@settings(max_examples=50)
def test_what_is_drawn_moves_no_domain_and_no_source(facts: Facts, data: st.DataObject) -> None:
    space = space_of(facts)
    settled = scalars_of(space.base)
    drawn = {**settled, **space.sample(lambda each: data.draw(FRACTIONS, label=each.name))}
    for rule in RULES:
        first, again = (rule.of(facts, values) for values in (settled, drawn))
        assert (first is None) == (again is None), rule.name
        if first is not None and again is not None:
            assert (first.domain, first.source) == (again.domain, again.source), rule.name


@pytest.mark.slow("draws many trials")
@given(facts=FACTS, data=st.data())
@settings(max_examples=50)
def test_names_lead_back_to_the_values(facts: Facts, data: st.DataObject) -> None:
    space = space_of(facts)
    values = space.define(lambda each, _: data.draw(in_domain(each.domain), label=each.name))
    assert {path_of(name): value for name, value in space.named(values).items()} == values


@pytest.mark.slow("draws many trials")
@given(facts=FACTS)
@settings(max_examples=50)
def test_the_first_trial_lies_in_the_space(facts: Facts) -> None:
    space = space_of(facts)
    domains = {each.name: each.domain for each in space.dimensions}
    outside = {name: value for name, value in space.named(space.own).items() if value not in domains[name]}
    assert not outside


@pytest.mark.slow("draws many trials")
@given(facts=FACTS)
@settings(max_examples=20)
def test_facts_that_were_stored_give_the_same_space_again(facts: Facts) -> None:
    assert space_of(Facts.from_tree(facts.tree())) == space_of(facts)
