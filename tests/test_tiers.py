"""Tests that a slow test says so."""

from __future__ import annotations

import pytest

from tests.tiers import LONGEST_SECONDS, NEW_MODULES, fault_of_marks, overtime


def test_a_test_of_more_than_two_seconds_is_at_fault_unless_its_marks_say_that_it_is_slow() -> None:
    assert overtime(LONGEST_SECONDS, 0, ["data"]) is None
    assert "@pytest.mark.slow" in (overtime(LONGEST_SECONDS + 0.1, 0, ["data"]) or "")
    for mark in ("slow", "integration", "gpu", "fuzz"):
        assert overtime(60.0, 0, ["data", mark]) is None


def test_the_first_import_of_a_large_package_is_not_a_test_s_own_time() -> None:
    assert overtime(9.0, NEW_MODULES, []) is None
    assert overtime(9.0, NEW_MODULES - 1, []) is not None


@pytest.mark.parametrize("arguments", [(), ("",), (2,), ("trains", "much")], ids=str)
@pytest.mark.parametrize("name", ["slow", "smoke"])
def test_a_mark_of_a_tier_says_why_in_words(name: str, arguments: tuple[object, ...]) -> None:
    assert f"@pytest.mark.{name}" in (fault_of_marks({name: arguments, "integration": ()}) or "")
    assert fault_of_marks({name: ("trains a network",), "integration": ()}) is None


def test_only_integration_tests_are_smoke_tests() -> None:
    assert "integration" in (fault_of_marks({"smoke": ("a search",)}) or "")
    assert fault_of_marks({"data": (), "parametrize": ("a", [1])}) is None
