"""Tests what `tunebook extend` refuses, in one message, with exit code 2, before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from search.record.home import EVENTS_FILE
from search.record.lock import locked
from tests.search.command_line import Refusal
from tests.search.planted_searches import Run, planted

pytestmark = pytest.mark.usefixtures("refused_at_once")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return planted(tmp_path, lambda at, luck: Run(luck.uniform(0.5, 0.9), 0.9), trials=3, budget__epochs=4)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((), "Missing option '--trials'"),
        (("--trials", "0"), "--trials"),
        (("--trials", "many"), "--trials"),
        (("--trials", "999999"), "--trials 999999: expected at most 1,000,000 in all, got 1,000,002"),
        (("--trials", "2"), "start a new search"),  # its images have changed
    ],
)
def test_what_cannot_be_extended_is_refused_and_stays_as_it_is(
    refusal: Refusal, folder: Path, asked: tuple[str, ...], message: str
) -> None:
    before = (folder / EVENTS_FILE).read_bytes()
    assert message in refusal("extend", folder, *asked)
    assert (folder / EVENTS_FILE).read_bytes() == before


def test_a_search_that_another_driver_is_at_work_on_is_refused(refusal: Refusal, folder: Path) -> None:
    before = (folder / EVENTS_FILE).read_bytes()
    with locked(folder):
        assert "another" in refusal("extend", folder, "--trials", "2")
    assert (folder / EVENTS_FILE).read_bytes() == before
