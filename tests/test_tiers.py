"""Tests that a slow test says so."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from tests import tiers
from tests.groups import SERVICES
from tests.tiers import LONGEST_SECONDS, MARGIN, NEW_MODULES, fault_of_marks, overtime, slowdown

INTEGRATION: list[tuple[str, tuple[object, ...]]] = [("integration", ())]


def test_a_test_of_more_than_two_seconds_is_at_fault_unless_its_marks_say_that_it_is_slow() -> None:
    assert overtime(MARGIN * LONGEST_SECONDS, 0, ["data"]) is None
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
    assert f"@pytest.mark.{name}" in (fault_of_marks([(name, arguments), *INTEGRATION]) or "")
    both = [(name, ("trains a network",)), (name, arguments), *INTEGRATION]
    assert fault_of_marks(both) is not None, "of a module, and of a test in it"
    assert fault_of_marks([(name, ("trains a network",)), *INTEGRATION]) is None


def test_only_integration_tests_are_smoke_tests() -> None:
    assert "integration" in (fault_of_marks([("smoke", ("a search",))]) or "")
    assert fault_of_marks([("data", ()), ("parametrize", ("a", [1]))]) is None


def test_every_test_is_timed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook of tests/conftest.py is called around this test; here it is called once more, by hand."""
    plugins = {each.plugin_name: each for each in request.config.hook.pytest_runtest_call.get_hookimpls()}
    (hook,) = [each for name, each in plugins.items() if name.endswith("tests/conftest.py")]
    around = cast("Generator[None]", hook.function(item=request.node))
    next(around)
    with monkeypatch.context() as patch:
        patch.setattr(tiers, "LONGEST_SECONDS", -1.0)
        with pytest.raises(pytest.fail.Exception, match="of processor time"):
            around.send(None)


def test_all_files_whose_tests_share_a_server_or_a_cluster_are_of_one_process() -> None:
    root = Path(__file__).parents[1]
    asks = re.compile(r"\w: (S3Server|Cluster)\b")
    found = {
        file.relative_to(root).as_posix()
        for file in root.joinpath("tests").rglob("test_*.py")
        if asks.search(file.read_text())
    }
    assert found == set(SERVICES)
