"""A space draws from what is believed, says where values lie in it, and refuses what no trial can have."""

import random
import re

import pytest

from spaces.domains import Choice, Float, SpaceError, Value
from spaces.priors import Normal, Prior, Uniform, Weights
from spaces.space import Dimension, Space, Values, When
from trainable.recipe import Recipe

KIND, RATE, DECAY = "optimizer.kind", "optimizer.lr", "optimizer.weight_decay"
SGD, ADAMW = When(KIND, ("sgd",)), When(KIND, ("adamw",))


def decay_prior(values: Values) -> Prior:
    """Less decay at higher rates."""
    rate = values.get(RATE, 0.1)
    assert isinstance(rate, float)
    return Normal(min(max(1e-5 / rate, 1e-6), 1e-2), "high")


DIMENSIONS = (
    Dimension(KIND, Choice(("sgd", "adamw")), "", "", prior=lambda _: Weights((3.0, 1.0))),
    Dimension(
        RATE, Float(0.01, 1.0, log=True), "", "", SGD, "sgd", lambda _: Normal(0.1, "high"), lambda _: "drawn"
    ),
    Dimension(RATE, Float(1e-4, 1e-2, log=True), "settled", "", ADAMW, "adamw"),
    Dimension(DECAY, Float(1e-6, 1e-2, log=True), "", "", prior=decay_prior),
)
OWN: Values = {KIND: "sgd", RATE: 0.1, DECAY: 1e-4}
SPACE = Space(Recipe(), DIMENSIONS, OWN)


def test_the_middles_of_the_priors_are_their_centres() -> None:
    values = SPACE.sample(lambda dimension: 0.5)
    assert values[KIND] == "sgd"
    assert values[RATE] == pytest.approx(0.1)
    assert values[DECAY] == pytest.approx(1e-4)


def test_a_prior_sees_what_was_drawn_before_it() -> None:
    values = SPACE.sample(lambda dimension: 0.9 if dimension.path == RATE else 0.5)
    rate, decay = values[RATE], values[DECAY]
    assert isinstance(rate, float)
    assert rate > 0.15
    assert decay == pytest.approx(1e-5 / rate, rel=0.01)  # the median: the ends cut a little off


def test_the_same_fractions_draw_the_same_values_and_draws_follow_the_weights() -> None:
    def draws() -> list[dict[str, Value]]:
        chance = random.Random(7)
        return [SPACE.sample(lambda dimension: chance.random()) for _ in range(1000)]

    first = draws()
    assert draws() == first
    share = sum(each[KIND] == "sgd" for each in first) / len(first)
    assert share == pytest.approx(0.75, abs=0.04)  # three standard deviations


def test_values_are_encoded_as_places_in_their_domains() -> None:
    assert SPACE.encode(OWN) == pytest.approx({KIND: 0.25, f"{RATE}[sgd]": 0.5, DECAY: 0.5})
    adam: Values = {KIND: "adamw", RATE: 1e-4, DECAY: 1e-2}
    assert SPACE.encode(adam) == pytest.approx({KIND: 0.75, f"{RATE}[adamw]": 0.0, DECAY: 1.0})


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({**OWN, RATE: 2.0}, "optimizer.lr[sgd]: expected 0.01 to 1, log, got 2"),
        ({**OWN, KIND: "lamb"}, "optimizer.lr: is no dimension here"),
        ({KIND: "sgd", RATE: 0.1}, "optimizer.weight_decay: expected a value, got none"),
        ({**OWN, "optimizer.momentum": 0.9}, "optimizer.momentum: is no dimension here"),
    ],
)
def test_values_that_no_trial_can_have_are_refused(values: dict[str, Value], fault: str) -> None:
    SPACE.validate(OWN)
    for check in (SPACE.encode, SPACE.validate):
        with pytest.raises(SpaceError, match=re.escape(fault)):
            check(values)


def test_beliefs_are_those_that_stood_when_each_value_was_drawn() -> None:
    assert SPACE.beliefs({KIND: "adamw", RATE: 1e-3, DECAY: 1e-4}) == {
        KIND: Weights((3.0, 1.0)),
        f"{RATE}[adamw]": Uniform(),
        DECAY: Normal(1e-2, "high"),
    }


def test_a_reason_is_that_of_the_values_drawn_or_else_the_settled_one() -> None:
    assert [each.reason_for(OWN) for each in DIMENSIONS[1:3]] == ["drawn", "settled"]


def test_a_prior_that_is_none_of_its_domains_is_refused_when_the_space_is_built() -> None:
    wrong = Dimension(RATE, Float(0.01, 1.0), "", "", prior=lambda _: Normal(2.0))
    with pytest.raises(SpaceError, match=r"optimizer\.lr: expected a prior within 0\.01 to 1, got 2"):
        Space(Recipe(), (wrong,), {RATE: 0.1})
