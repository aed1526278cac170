"""Tests times in words."""

from __future__ import annotations

import pytest

from search.record.clock import time_limit


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (3.0, "3 hours"),
        (1.5, "1.5 hours"),
        (1.0, "1 hour"),
        (5 / 60, "5 min"),
        (100 / 60, "100 min"),
        (0.001, "3.6 s"),
    ],
)
def test_a_limit_of_time_is_said_in_the_unit_of_its_size(hours: float, words: str) -> None:
    assert time_limit(hours) == words
