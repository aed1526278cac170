"""Tests what searches teach of one dimension: where its belief lies, how sure it is, and why."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.learning.lessons import Lesson, Likeness, confidence_in, with_lessons
from search.learning.optimum import Optimum
from spaces.domains import Choice, Domain, Float, Integer, Value, value_at
from spaces.priors import SPREADS, Normal, Prior, Uniform, Weights
from spaces.space import Believed, Dimension

RATES = Float(0.001, 10.0, log=True)
KINDS = Choice(("sgd", "adamw"))


def dimension(domain: Domain, prior: Prior) -> Dimension:
    return Dimension("optimizer.lr", domain, "as a guide says", "003:23", beliefs=Believed(prior))


def around(
    place: float, width: float = 0.01, *, domain: Domain = RATES, rule: float | None = None, far: float = 0.0
) -> Lesson:
    """Return a lesson of values spread around a place of a domain."""
    places = [min(max(place + width * step, 0.0), 0.999999) for step in (-1.0, 0.0, 1.0)]
    values = [value_at(domain, each) for each in places]
    return Lesson("old", Optimum(tuple(values), (0.25, 0.5, 0.25)), domain, rule, Likeness(far))


def options(far: float = 0.0, **shares: float) -> Lesson:
    return Lesson(
        "old", Optimum(tuple(shares), tuple(shares.values())), Choice(tuple(shares)), None, Likeness(far)
    )


def believed(of: Dimension) -> Prior:
    return of.prior({})


def test_without_a_rule_the_belief_lies_where_the_best_values_did() -> None:
    prior = believed(with_lessons(dimension(RATES, Uniform()), [around(0.5)]))
    assert isinstance(prior, Normal)
    assert prior.centre == pytest.approx(0.1, rel=0.05)
    assert prior.confidence == "medium"


def test_a_shift_from_the_rule_there_is_added_to_the_rule_here() -> None:
    own = dimension(RATES, Normal(1.0, "low"))
    (three_times,) = [around(0.5, rule=0.1 / 3.0)]
    prior = believed(with_lessons(own, [three_times]))
    assert isinstance(prior, Normal)
    assert 1.0 < prior.centre < 3.0
    same = believed(with_lessons(own, [around(0.5, rule=0.1)]))
    assert isinstance(same, Normal)
    assert same.centre == pytest.approx(1.0, rel=0.05)


def test_one_search_is_never_believed_with_high_confidence_and_three_that_agree_are() -> None:
    one, three = (believed(with_lessons(dimension(RATES, Uniform()), [around(0.5)] * n)) for n in (1, 3))
    assert isinstance(one, Normal)
    assert isinstance(three, Normal)
    assert (one.confidence, three.confidence) == ("medium", "high")


def test_searches_that_differ_widen_even_a_rule_that_was_sure() -> None:
    own = dimension(RATES, Normal(0.1, "high"))
    prior = believed(with_lessons(own, [around(0.02), around(0.98)]))
    assert isinstance(prior, Normal)
    assert prior.confidence == "low"


@given(st.floats(0.05, 0.95), st.floats(0.0, 5.0), st.floats(0.0, 5.0))
def test_a_search_that_is_less_alike_moves_the_rule_less(place: float, one: float, other: float) -> None:
    own = dimension(RATES, Normal(0.1, "medium"))

    def moved(far: float) -> float:
        prior = believed(with_lessons(own, [around(place, far=far)]))
        return abs(math.log(prior.centre / 0.1)) if isinstance(prior, Normal) else 0.0

    near, far = sorted((one, other))
    assert moved(far) <= moved(near) + 1e-9


@given(st.sampled_from((Uniform(), Normal(0.1, "low"), Normal(2.0, "high"))), st.floats(0.0, 3.0))
def test_what_shows_no_best_value_changes_nothing(prior: Prior, far: float) -> None:
    values = tuple(value_at(RATES, (each + 0.5) / 33) for each in range(33))
    even = Lesson("old", Optimum(values, (1 / 33,) * 33), RATES, None, Likeness(far))
    own = dimension(RATES, prior)
    assert with_lessons(own, [even]) is own
    assert with_lessons(own, []) is own


def test_values_too_far_apart_for_any_belief_change_no_even_one() -> None:
    own = dimension(RATES, Uniform())
    assert with_lessons(own, [around(0.5, 0.36)]) is own


@given(st.floats(0.0, 1.0), st.floats(0.0, 0.3), st.floats(1e-3, 1e3), st.floats(0.0, 3.0))
def test_a_belief_never_leaves_its_range(place: float, width: float, rule: float, far: float) -> None:
    narrow = Float(0.05, 0.2, log=True)
    own = Dimension("optimizer.lr", narrow, "as a guide says", "003:23", beliefs=Believed(Normal(0.1)))
    prior = believed(with_lessons(own, [around(place, width, rule=rule, far=far)]))
    assert isinstance(prior, Uniform) or (isinstance(prior, Normal) and prior.centre in narrow)


def test_a_whole_number_has_its_belief_too() -> None:
    depths = Integer(1, 9)
    prior = believed(with_lessons(dimension(depths, Uniform()), [around(0.9, domain=depths)]))
    assert isinstance(prior, Normal)
    assert prior.centre == pytest.approx(8.6, abs=0.5)


@given(st.floats(1e-4, 0.3))
def test_a_confidence_is_never_surer_than_a_variance(variance: float) -> None:
    found = confidence_in(variance)
    assert found is None or SPREADS[found] ** 2 >= variance


def test_options_get_the_rules_odds_times_those_of_the_search() -> None:
    own = dimension(KINDS, Weights((2.0, 1.0)))
    prior = believed(with_lessons(own, [options(sgd=0.2, adamw=0.8)]))
    assert isinstance(prior, Weights)
    assert prior.shares == pytest.approx((1 / 3, 2 / 3))


def test_a_search_changes_the_odds_by_eight_at_most_and_less_if_it_is_less_alike() -> None:
    own = dimension(KINDS, Weights((1.0, 1.0)))
    sure, far = (believed(with_lessons(own, [options(each, sgd=0.0, adamw=1.0)])) for each in (0.0, 5.0))
    assert isinstance(sure, Weights)
    assert isinstance(far, Weights)
    assert sure.shares[1] == pytest.approx(8 / 9)
    assert 0.5 < far.shares[1] < sure.shares[1]


def test_searches_that_prefer_different_options_cancel_out() -> None:
    own = dimension(KINDS, Weights((2.0, 1.0)))
    assert with_lessons(own, [options(sgd=0.2, adamw=0.8), options(sgd=0.8, adamw=0.2)]) is own


def test_an_option_that_a_search_did_not_have_keeps_its_odds_and_strange_ones_are_left_out() -> None:
    own = dimension(Choice(("sgd", "adamw", "lamb")), Uniform())
    prior = believed(with_lessons(own, [options(sgd=0.2, adamw=0.8, adagrad=0.0)]))
    assert isinstance(prior, Weights)
    assert prior.weights == pytest.approx((1 / 6, 2 / 3, 1 / 3))


@pytest.mark.parametrize("values", [(0.1, 1.0), (True, 1)])
def test_options_say_nothing_of_a_range(values: tuple[Value, ...]) -> None:
    lesson = Lesson("old", Optimum(values, (0.9, 0.1)), Choice(values), None, Likeness(0.0))
    own = dimension(RATES, Uniform())
    assert with_lessons(own, [lesson]) is own


def test_the_reason_names_each_search_its_weight_and_the_rule() -> None:
    own = dimension(RATES, Normal(0.1))
    found = with_lessons(own, [around(0.75)])
    reason = found.reason_for({})
    assert "old expects 1 (weight 61%), the rule 0.1 (weight 39%)" in reason
    assert reason.endswith("as a guide says"), "the rule's own reason"
    assert found.source == "space.learn_from; 003:23"
