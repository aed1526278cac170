"""Tests scores by rank: against sorting, and in pairs at the last level that both trials have reached."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.deciding.pairwise import wins
from search.deciding.scheduler import PromotionAsha, RankedValues
from trainable.recipe.metrics import Mode

MODES = st.sampled_from(("max", "min"))
VALUES = st.lists(
    st.one_of(
        st.integers(0, 4).map(lambda step: step / 4),  # few, so that many are equal
        st.sampled_from((0.0, -0.0)),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize(
    ("value", "values", "mode", "better"),
    [
        (0.5, (0.5,), "max", 0),
        (0.5, (0.5, 0.9, 0.1), "max", 1),
        (0.5, (0.5, 0.9, 0.1), "min", 1),
        (0.1, (0.5, 0.9, 0.1), "min", 0),
        (0.5, (0.5, 0.5, 0.5), "max", 0),
        (0.4, (0.4, 0.5, 0.5), "max", 2),
    ],
)
def test_only_the_strictly_better_count(
    value: float, values: tuple[float, ...], mode: Mode, better: int
) -> None:
    assert ranked(values, mode).better(value) == better


@given(values=VALUES, mode=MODES)
def test_places_are_those_of_sorting_everything_anew(values: list[float], mode: Mode) -> None:
    kept = RankedValues(mode)
    for trial, value in enumerate(values):
        kept.add(trial, value)
        so_far = dict(enumerate(values[: trial + 1]))
        expected = sorted(so_far, key=so_far.__getitem__, reverse=mode == "max")
        assert sorted(so_far, key=kept.before) == expected
        assert [kept.before(each) for each in expected] == list(range(len(expected)))
        assert kept.better(value) == sum(
            each > value if mode == "max" else each < value for each in so_far.values()
        )


@given(values=VALUES, mode=MODES, factor=st.integers(2, 4), goes_on=st.lists(st.booleans(), min_size=40))
def test_promotions_are_those_of_sorting_everything_anew(
    values: list[float], mode: Mode, factor: int, goes_on: list[bool]
) -> None:
    scheduler = PromotionAsha((1,), factor, mode)
    paused: dict[int, int] = {}
    for trial, value in enumerate(values):
        scheduler.report(trial, 1, value)
        paused[trial] = 1
        so_far = dict(enumerate(values[: trial + 1]))
        best_first = sorted(so_far, key=so_far.__getitem__, reverse=mode == "max")
        going_on = [each for each in best_first[: len(so_far) // factor] if each in paused]
        assert scheduler.promoted(paused) == next(iter(going_on), None)
        most = max(1, len(values) // factor)
        hopeless = [each for each in best_first[most:] if each in paused]
        assert scheduler.hopeless(paused, len(values)) == hopeless
        if going_on and goes_on[trial]:
            del paused[going_on[0]]


class Counted(float):
    """A number that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: float) -> bool:
        Counted.compared += 1
        return float(self) < float(other)

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return float(self) == other

    __hash__ = float.__hash__

    def __mul__(self, other: float) -> Counted:
        return Counted(float(self) * other)

    __rmul__ = __mul__


@pytest.mark.parametrize("count", [100, 10_000])
def test_a_value_is_compared_with_a_few_others_among_however_many(count: int) -> None:
    kept = ranked([(7919 * number % count) / count for number in range(count)], "max")
    Counted.compared = 0
    kept.add(count, Counted(0.3))
    kept.better(Counted(0.3))
    kept.before(count)
    assert 0 < Counted.compared <= 3 * 2 * (math.log2(count) + 2)


def ranked(values: tuple[float, ...] | list[float], mode: Mode) -> RankedValues:
    kept = RankedValues(mode)
    for trial, value in enumerate(values):
        kept.add(trial, value)
    return kept


LEVELS = 3
TRIALS = st.lists(st.lists(st.integers(0, 4), max_size=LEVELS), min_size=1, max_size=12)


def padded(trials: list[list[int]]) -> np.ndarray:
    """Return the scores of trials that have reached so many levels each, as `wins` takes them."""
    return np.array([[*map(float, each), *[np.nan] * (LEVELS - len(each))] for each in trials])


def sign(one: list[int], other: list[int]) -> int:
    """Return 1 where one trial is above another, -1 where it is below it, by the definition."""
    if not one or not other:
        return bool(one) - bool(other)
    last = min(len(one), len(other)) - 1
    return (one[last] > other[last]) - (one[last] < other[last])


@given(TRIALS)
def test_each_pair_is_compared_at_the_last_level_of_both(trials: list[list[int]]) -> None:
    expected = [sum(sign(one, other) for other in trials) for one in trials]
    assert wins(padded(trials)).tolist() == expected
