"""Searches in which every trial scores averaged weights, with a decay that varies."""

from typing import Any

import pytest

from spaces.averages import with_values
from spaces.catalog.catalog import make_space
from spaces.domains import Choice, Float, SpaceError
from spaces.facts import Facts
from spaces.priors import mode
from spaces.space import Space
from tests.spaces.rules.rule_facts import asked
from tests.spaces.small_facts import base_recipe, digits_facts
from trainable.errors import RecipeError
from trainable.recipe import Recipe

WEIGHTS, DECAY = "evaluation.weights", "regularisation.ema_decay"
FACTS = digits_facts()
ALWAYS: list[dict[str, Any]] = [{WEIGHTS: {"fixed": "ema"}}, {WEIGHTS: {"choice": ["ema"]}}]


def of(overrides: dict[str, Any], name: str = "document", facts: Facts = FACTS) -> Space:
    return make_space(name, base_recipe(facts), frozenset(), facts, overrides)


@pytest.mark.parametrize("always", ALWAYS)
@pytest.mark.parametrize("decay", [{}, {DECAY: {"rule": True}}])
def test_averages_in_every_trial_take_the_rules_decays(always: dict[str, Any], decay: dict[str, Any]) -> None:
    space, rule = of({**always, **decay}), asked(DECAY, FACTS)
    (dimension,) = (each for each in space.dimensions if each.path == DECAY)
    assert (dimension.domain, dimension.when) == (rule.domain, None)
    assert space.own[DECAY] == mode(rule.domain, rule.prior)
    assert space.recipe(space.sample(lambda _: 0.9)).evaluation.weights == "ema"


@pytest.mark.parametrize("always", ALWAYS)
@pytest.mark.parametrize(
    ("written", "own"),
    [
        ({"uniform": [0.9, 0.98]}, 0.94),
        ({"uniform": [0.9, 0.98], "prior": 0.97}, 0.97),
        ({"choice": [0.5, 0.9, 0.95]}, 0.5),
        ({"choice": [0.5, 0.9, 0.95], "weights": [1, 3, 2]}, 0.9),
    ],
)
def test_a_range_that_is_written_for_their_decay_gives_the_first_trials_too(
    always: dict[str, Any], written: dict[str, Any], own: float
) -> None:
    space = of({**always, DECAY: written})
    assert space.own[DECAY] == pytest.approx(own)
    (dimension,) = (each for each in space.dimensions if each.path == DECAY)
    assert space.own[DECAY] in dimension.domain


def test_a_space_that_leaves_the_decay_alone_takes_the_rules_likeliest() -> None:
    space, rule = of({WEIGHTS: {"fixed": "ema"}}, "quick"), asked(DECAY, FACTS)
    assert [each.path for each in space.dimensions] == ["optimizer.lr"]
    assert space.base.regularisation.ema_decay == mode(rule.domain, rule.prior)


def test_a_wide_space_takes_its_own_decays() -> None:
    space = of({WEIGHTS: {"fixed": "ema"}}, "wide")
    (dimension,) = (each for each in space.dimensions if each.path == DECAY)
    assert isinstance(dimension.domain, Choice)
    assert space.own[DECAY] in dimension.domain


def test_averages_that_are_pinned_in_the_base_leave_the_decay_to_vary() -> None:
    base = with_values(base_recipe(FACTS), {WEIGHTS: "ema"})
    overrides = {DECAY: {"uniform": [0.9, 0.98]}}
    space = make_space("document", base, frozenset({WEIGHTS}), FACTS, overrides)
    (dimension,) = (each for each in space.dimensions if each.path == DECAY)
    assert dimension.domain == Float(0.9, 0.98)
    assert space.own[DECAY] == pytest.approx(0.94)


def test_a_decay_that_is_fixed_stays() -> None:
    space = of({WEIGHTS: {"fixed": "ema"}, DECAY: {"fixed": 0.97}})
    assert space.base.regularisation.ema_decay == 0.97
    assert DECAY not in {each.path for each in space.dimensions}


def test_a_decay_that_cannot_be_is_refused_where_it_is_written() -> None:
    with pytest.raises(
        SpaceError, match=r"space\.overrides\.regularisation\.ema_decay: expected less than 1"
    ):
        of({WEIGHTS: {"fixed": "ema"}, DECAY: {"uniform": [2, 3]}})


def test_raw_weights_get_no_decay() -> None:
    assert of({WEIGHTS: {"fixed": "raw"}}).base.regularisation.ema_decay is None
    assert with_values(Recipe(), {WEIGHTS: "raw"}) == Recipe()


def test_averages_without_a_decay_are_still_no_recipe() -> None:
    with pytest.raises(RecipeError, match="must be a number"):
        with_values(Recipe(), {WEIGHTS: "ema", DECAY: None})
