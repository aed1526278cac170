"""Tests searches in which every trial averages its weights, with a decay that varies."""

from typing import Any

import pytest

from spaces.catalog.catalog import make_space
from spaces.domains import Choice, Float
from spaces.facts import Facts
from spaces.priors import likeliest
from spaces.space import Space
from tests.spaces.rules.rule_facts import asked
from tests.spaces.small_facts import base_recipe, digits_facts
from trainable.recipe.training import ExponentialAveraging, NoAveraging

AVERAGING, DECAY = "regularisation.averaging.kind", "regularisation.averaging.decay"
FACTS = digits_facts()
ALWAYS: list[dict[str, Any]] = [{AVERAGING: {"fixed": "ema"}}, {AVERAGING: {"choice": ["ema"]}}]


def of(overrides: dict[str, Any], name: str = "document", facts: Facts = FACTS) -> Space:
    return make_space(name, base_recipe(facts), frozenset(), facts, overrides)


@pytest.mark.parametrize("always", ALWAYS)
@pytest.mark.parametrize("decay", [{}, {DECAY: {"rule": True}}])
def test_averages_in_every_trial_take_the_rules_decays(always: dict[str, Any], decay: dict[str, Any]) -> None:
    space, rule = of({**always, **decay}), asked(DECAY, FACTS)
    (dimension,) = (each for each in space.dimensions if each.path == DECAY)
    assert (dimension.domain, dimension.when) == (rule.domain, None)
    assert space.own[DECAY] == likeliest(rule.domain, rule.prior)
    assert space.recipe(space.sample(lambda _: 0.9)).regularisation.averaging.kind == "ema"


@pytest.mark.parametrize("always", ALWAYS)
@pytest.mark.parametrize(
    ("written", "own"),
    [
        ({"uniform": [0.9, 0.99]}, 0.95654),
        ({"uniform": [0.97, 0.99]}, 0.95654),
        ({"choice": [0.5, 0.9, 0.95654]}, 0.95654),
        ({"choice": [0.5, 0.9, 0.95]}, 0.5),
    ],
)
def test_the_first_trial_has_the_rules_decay_unless_it_is_none_of_the_options_that_a_person_wrote(
    always: dict[str, Any], written: dict[str, Any], own: float
) -> None:
    assert of({**always, DECAY: written}).own[DECAY] == own


def test_a_space_that_leaves_the_decay_alone_takes_the_rules_likeliest() -> None:
    space, rule = of({AVERAGING: {"fixed": "ema"}}, "quick"), asked(DECAY, FACTS)
    assert [each.path for each in space.dimensions] == ["optimizer.lr"]
    assert space.base.get(DECAY) == likeliest(rule.domain, rule.prior)


def test_a_wide_space_begins_at_the_nearest_of_its_own_decays() -> None:
    space, rule = of({AVERAGING: {"fixed": "ema"}}, "wide"), asked(DECAY, FACTS)
    (dimension,) = (each for each in space.dimensions if each.path == DECAY)
    assert isinstance(dimension.domain, Choice)
    assert likeliest(rule.domain, rule.prior) == 0.95654
    assert space.own[DECAY] == 0.99


def test_averages_that_are_pinned_in_the_base_leave_the_decay_to_vary() -> None:
    base = base_recipe(FACTS).with_values({AVERAGING: "ema"})
    overrides = {DECAY: {"uniform": [0.9, 0.98]}}
    space = make_space("document", base, frozenset({AVERAGING}), FACTS, overrides)
    (dimension,) = (each for each in space.dimensions if each.path == DECAY)
    assert dimension.domain == Float(0.9, 0.98)
    assert dimension.when is None


def test_a_decay_that_is_fixed_stays() -> None:
    space = of({AVERAGING: {"fixed": "ema"}, DECAY: {"fixed": 0.97}})
    assert space.base.regularisation.averaging == ExponentialAveraging(decay=0.97)
    assert DECAY not in {each.path for each in space.dimensions}


def test_without_averages_there_is_no_decay() -> None:
    space = of({AVERAGING: {"fixed": "none"}})
    assert space.base.regularisation.averaging == NoAveraging()
    assert DECAY not in {each.path for each in space.dimensions}
