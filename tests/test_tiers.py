"""Tests that a slow test says so."""

from __future__ import annotations

import pytest

from tests import tiers
from tests.tiers import LONGEST_SECONDS, NEW_MODULES, fault_of_marks, overtime, slowdown


def test_a_test_of_more_than_two_seconds_is_at_fault_unless_its_marks_say_that_it_is_slow() -> None:
    assert overtime(LONGEST_SECONDS, 0, ["data"]) is None
    assert "@pytest.mark.slow" in (overtime(60.0, 0, ["data"]) or "")
    for mark in ("slow", "integration", "gpu", "fuzz"):
        assert overtime(60.0, 0, ["data", mark]) is None


def test_a_second_of_a_slow_machine_counts_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slowdown() >= 1
    monkeypatch.setattr(tiers, "SECONDS_OF_SQUARES", tiers.SECONDS_OF_SQUARES / 1e6)
    assert slowdown() > 1000
    assert overtime(60.0, 0, []) is None


def test_the_first_import_of_a_large_package_is_not_a_test_s_own_time() -> None:
    assert overtime(60.0, NEW_MODULES, []) is None
    assert overtime(60.0, NEW_MODULES - 1, []) is not None


@pytest.mark.parametrize("arguments", [(), ("",), (2,), ("trains", "much")], ids=str)
@pytest.mark.parametrize("name", ["slow", "smoke"])
def test_a_mark_of_a_tier_says_why_in_words(name: str, arguments: tuple[object, ...]) -> None:
    assert f"@pytest.mark.{name}" in (fault_of_marks({name: arguments, "integration": ()}) or "")
    assert fault_of_marks({name: ("trains a network",), "integration": ()}) is None


def test_only_integration_tests_are_smoke_tests() -> None:
    assert "integration" in (fault_of_marks({"smoke": ("a search",)}) or "")
    assert fault_of_marks({"data": (), "parametrize": ("a", [1])}) is None
