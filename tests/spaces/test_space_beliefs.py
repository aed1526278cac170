"""Tests that a space draws from what is believed, locates values, and refuses what no trial can have."""

import random
import re

import pytest

from spaces.domains import Choice, Float, SpaceError, Value, Values
from spaces.priors import Normal, Uniform, Weights
from spaces.space import Believed, Dimension, Space, When
from spaces.tables import ByValue, Case
from trainable.recipe import Recipe

KIND, RATE, DECAY = "optimizer.kind", "optimizer.lr", "optimizer.weight_decay"
SGD, ADAMW = When(KIND, ("sgd",)), When(KIND, ("adamw",))


MORE_FOR_ADAMW = ByValue(
    KIND,
    "sgd",
    (
        Case(("sgd",), Believed(Normal(1e-4, "high"))),
        Case(("adamw",), Believed(Normal(1e-2, "high"), "decoupled")),
    ),
)

DIMENSIONS = (
    Dimension(KIND, Choice(("sgd", "adamw")), "", "", beliefs=Believed(Weights((3.0, 1.0)))),
    Dimension(RATE, Float(0.01, 1.0, log=True), "", "", SGD, "sgd", Believed(Normal(0.1, "high"), "drawn")),
    Dimension(RATE, Float(1e-4, 1e-2, log=True), "settled", "", ADAMW, "adamw"),
    Dimension(DECAY, Float(1e-6, 1e-2, log=True), "L2", "", beliefs=MORE_FOR_ADAMW),
)
OWN: Values = {KIND: "sgd", RATE: 0.1, DECAY: 1e-4}
SPACE = Space(Recipe(), DIMENSIONS, OWN)


def test_the_middles_of_the_priors_are_their_centres() -> None:
    values = SPACE.sample(lambda dimension: 0.5)
    assert values[KIND] == "sgd"
    assert values[RATE] == pytest.approx(0.1)
    assert values[DECAY] == pytest.approx(1e-4)


def test_a_prior_sees_what_was_drawn_before_it() -> None:
    values = SPACE.sample(lambda dimension: 0.9 if dimension.path == KIND else 0.5)
    assert values[KIND] == "adamw"
    decay = values[DECAY]
    assert isinstance(decay, float)
    assert 1e-3 < decay < 1e-2  # half of a bell whose middle is the domain's end


def test_the_same_fractions_draw_the_same_values_and_draws_follow_the_weights() -> None:
    def draws() -> list[dict[str, Value]]:
        chance = random.Random(7)
        return [SPACE.sample(lambda dimension: chance.random()) for _ in range(1000)]

    first = draws()
    assert draws() == first
    share = sum(each[KIND] == "sgd" for each in first) / len(first)
    assert share == pytest.approx(0.75, abs=0.04)  # three standard deviations


def test_values_are_encoded_as_positions_in_their_domains() -> None:
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
    SPACE.encode(OWN)
    with pytest.raises(SpaceError, match=re.escape(fault)):
        SPACE.encode(values)


def test_beliefs_are_those_that_stood_when_each_value_was_drawn() -> None:
    assert SPACE.priors({KIND: "adamw", RATE: 1e-3, DECAY: 1e-4}) == {
        KIND: Weights((3.0, 1.0)),
        f"{RATE}[adamw]": Uniform(),
        DECAY: Normal(1e-2, "high"),
    }


def test_a_reason_is_that_of_the_values_drawn_or_else_the_settled_one() -> None:
    assert [each.reason_for(OWN) for each in DIMENSIONS[1:]] == ["drawn", "settled", "L2"]
    assert DIMENSIONS[3].reason_for({KIND: "adamw"}) == "decoupled"


def test_a_prior_that_is_none_of_its_domains_is_refused_when_the_space_is_built() -> None:
    wrong = Dimension(RATE, Float(0.01, 1.0), "", "", beliefs=Believed(Normal(2.0)))
    with pytest.raises(SpaceError, match=r"optimizer\.lr: expected a prior within 0\.01 to 1, got 2"):
        Space(Recipe(), (wrong,), {RATE: 0.1})
