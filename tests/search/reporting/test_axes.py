"""Tests axes: where values lie, and what the labels say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.reporting.plots import Axis, axis_over, domain_axis, numbered_axis
from spaces.domains import Choice, Domain, Float, Integer, fraction_of, shown

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20)


@given(NUMBERS)
def test_an_axis_holds_all_of_its_numbers_in_order(numbers: list[float]) -> None:
    axis = axis_over("score", numbers)
    shares = [axis.share(each) for each in sorted(numbers)]
    assert shares == sorted(shares)
    assert all(0.0 <= each <= 1.0 for each in shares)


@given(NUMBERS, st.booleans())
def test_labels_lie_where_their_numbers_are(numbers: list[float], log: bool) -> None:
    numbers = [abs(each) + 1e-3 for each in numbers] if log else numbers
    axis = axis_over("score", numbers, log=log)
    for tick in axis.ticks:
        assert axis.share(float(tick.text)) == pytest.approx(tick.at, abs=1e-3)


def test_a_logarithmic_axis_gives_each_power_of_ten_the_same_length() -> None:
    axis = numbered_axis("lr", 1e-4, 1.0, log=True)
    assert [axis.share(10.0**power) for power in range(-4, 1)] == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])
    assert [each.text for each in axis.ticks] == ["0.0001", "0.001", "0.01", "0.1", "1"]


def test_whole_numbers_get_whole_labels() -> None:
    assert {float(each.text) % 1.0 for each in numbered_axis("epoch", 0.5, 4.5, whole=True).ticks} == {0.0}


def test_an_axis_without_numbers_goes_from_zero_to_one() -> None:
    assert (axis_over("score", []).share(0.0) < 0.1, axis_over("score", []).share(1.0) > 0.9) == (True, True)


@pytest.mark.parametrize(
    "domain", [Float(0.0, 1.0), Float(1e-5, 1e-1, log=True), Integer(1, 9), Integer(8, 512, log=True)]
)
def test_labels_of_a_domain_lie_where_its_values_do(domain: Domain) -> None:
    ticks = domain_axis("x", domain).ticks
    assert len(ticks) >= 3
    for tick in ticks:
        value = float(tick.text)
        value = int(value) if isinstance(domain, Integer) else value
        assert tick.at == pytest.approx(fraction_of(domain, value), abs=1e-6)


def test_each_option_has_its_label_in_the_middle_of_its_share() -> None:
    domain = Choice(("sgd", None, True, 0.5))
    ticks = {tick.text: tick.at for tick in domain_axis("x", domain).ticks}
    assert ticks == {shown(each): pytest.approx(fraction_of(domain, each)) for each in domain.options}


def test_a_number_outside_an_axis_is_drawn_at_its_end() -> None:
    assert Axis("", 1.0, 2.0).share(-math.inf) == 0.0
    assert Axis("", 1.0, 2.0).share(9.0) == 1.0
