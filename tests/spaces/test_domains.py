import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spaces.domains import (
    Choice,
    Domain,
    Float,
    Integer,
    SpaceError,
    cell_of,
    fraction_of,
    index_of,
    shown,
    value_at,
)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Float(0.1, 0.01), "expected low < high, got low 0.1, high 0.01"),
        (lambda: Float(1.0, 1.0), "expected low < high, got low 1.0, high 1.0"),
        (lambda: Float(0.0, 1.0, log=True), "a logarithmic range needs low > 0, got 0.0"),
        (lambda: Float(-1.0, 1.0, log=True), "a logarithmic range needs low > 0, got -1.0"),
        (lambda: Float(0.0, math.inf), "expected two finite numbers, got inf"),
        (lambda: Float(math.nan, 1.0), "expected two finite numbers, got nan"),
        (lambda: Float("1e-3", 1.0), "expected two finite numbers, got '1e-3'"),  # type: ignore[arg-type]
        (lambda: Float(False, True), "expected two finite numbers, got False, True"),
        (lambda: Integer(3, 2), "expected low < high, got low 3, high 2"),
        (lambda: Integer(0, 2, log=True), "a logarithmic range needs low >= 1, got 0"),
        (lambda: Integer(1, 2.5), "expected whole numbers, got 2.5"),  # type: ignore[arg-type]
        (lambda: Integer(None, 2), "expected two finite numbers, got None"),  # type: ignore[arg-type]
        (lambda: Choice(()), "expected at least one option, got none"),
        (lambda: Choice((1, 2, 1)), "expected each option once, got 1 again"),
        (lambda: Choice((0.1, math.nan)), "expected finite numbers as options, got nan"),
        (lambda: Choice(((1, 2),)), r"expected numbers, words, .* got \(1, 2\)"),  # type: ignore[arg-type]
    ],
)
def test_a_domain_that_cannot_be_is_refused(build: Callable[[], Domain], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        build()


@pytest.mark.parametrize(
    ("domain", "inside", "outside"),
    [
        (Float(0.1, 0.5), [0.1, 0.3, 0.5], [0.09, 0.51, math.nan, "0.3", None, True]),
        (Integer(0, 3), [0, 3], [-1, 4, 1.0, True, None]),
        (Integer(1, 8, log=True), [1, 8], [0, 9]),
        (Choice((1, "a", None)), [1, "a", None], [True, 2, "b"]),
        (Choice((True, 0)), [True, 0], [1, False]),
    ],
)
def test_a_domain_knows_its_values(domain: Domain, inside: list[Any], outside: list[Any]) -> None:
    assert all(value in domain for value in inside)
    assert not any(value in domain for value in outside)


def test_true_and_one_are_two_options() -> None:
    assert Choice((True, 1)).extremes() == (True, 1)


@pytest.mark.parametrize(
    ("domain", "extremes", "words"),
    [
        (Float(1e-4, 0.5, log=True), (1e-4, 0.5), "0.0001 to 0.5, log"),
        (Float(0.0, 2.0), (0.0, 2.0), "0 to 2"),
        (Integer(5, 15), (5, 15), "5 to 15, whole"),
        (Choice(("none", None, True, 0.25)), ("none", None, True, 0.25), "one of none, null, true, 0.25"),
    ],
)
def test_a_domain_tells_its_extremes_and_itself(
    domain: Domain, extremes: tuple[Any, ...], words: str
) -> None:
    assert domain.extremes() == extremes
    assert str(domain) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "true"),
        (None, "null"),
        (0.25, "0.25"),
        (3, "3"),
        ("sgd", "sgd"),
        (1.0, "1"),
        (0.99999995, "0.99999995"),
    ],
)
def test_values_are_shown_as_in_yaml(value: Any, words: str) -> None:
    assert shown(value) == words


RANGES = [
    Float(0.0, 2.0),
    Float(1e-4, 0.5, log=True),
    Integer(0, 20),
    Integer(1, 512, log=True),
    Choice(("a", True, 1, None)),
]


@given(domain=st.sampled_from(RANGES), fraction=st.floats(0.0, 1.0, exclude_max=True))
def test_a_value_lies_where_it_was_taken_from(domain: Domain, fraction: float) -> None:
    value = value_at(domain, fraction)
    assert value in domain
    match domain:
        case Float():
            assert fraction_of(domain, value) == pytest.approx(fraction, abs=1e-9)
        case Integer():
            assert isinstance(value, int)
            start, end = cell_of(domain, value)
            assert start - 1e-9 <= fraction <= end + 1e-9
            assert start < fraction_of(domain, value) < end
        case Choice(options=options):
            assert abs(fraction_of(domain, value) - fraction) <= 0.5 / len(options)


def test_the_cells_of_whole_numbers_fill_their_range() -> None:
    for domain in (Integer(0, 20), Integer(1, 512, log=True)):
        cells = [cell_of(domain, value) for value in range(domain.low, domain.high + 1)]
        assert (cells[0][0], cells[-1][1]) == pytest.approx((0.0, 1.0))
        assert [end for _, end in cells[:-1]] == pytest.approx([start for start, _ in cells[1:]])


@pytest.mark.parametrize(
    ("domain", "value", "message"),
    [
        (Float(0.0, 2.0), 3.0, "expected 0 to 2, got 3"),
        (Integer(0, 20), 0.5j, "expected 0 to 20, whole, got 0.5j"),
        (Choice(("a", True)), 1, "expected one of a, true, got 1"),
    ],
)
def test_what_is_not_in_a_domain_lies_nowhere_in_it(domain: Domain, value: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        fraction_of(domain, value)


def test_an_option_is_found_by_its_kind_and_value() -> None:
    assert [index_of(Choice((1, True, 0, False, None)), each) for each in (True, 1, None, False)] == [
        1,
        0,
        4,
        3,
    ]
