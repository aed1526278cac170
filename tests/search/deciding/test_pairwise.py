"""Tests that trials are compared in pairs at the last level that both have reached."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from search.deciding.pairwise import wins

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
