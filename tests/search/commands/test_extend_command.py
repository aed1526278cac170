"""Tests what `tunebook extend` refuses, in one message, with exit code 2, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from search.record.home import EVENTS_FILE
from search.record.lock import locked
from tests.search.planted_searches import Run, planted

Tunebook = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.usefixtures("refused_at_once")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return planted(tmp_path, lambda at, luck: Run(luck.uniform(0.5, 0.9), 0.9), trials=3, budget__epochs=4)


@pytest.mark.parametrize(
    ("trials", "message"),
    [
        ("0", "--trials"),
        ("many", "--trials"),
        ("999999", "--trials 999999: expected at most 1,000,000 in all, got 1,000,002"),
    ],
)
def test_a_number_of_trials_that_no_search_can_have_is_refused(
    tunebook: Tunebook, folder: Path, trials: str, message: str
) -> None:
    before = (folder / EVENTS_FILE).read_bytes()
    code, _, err = tunebook("extend", folder, "--trials", trials)
    assert code == 2, err
    assert message in err
    assert (folder / EVENTS_FILE).read_bytes() == before


def test_the_number_of_trials_must_be_given(tunebook: Tunebook, folder: Path) -> None:
    code, _, err = tunebook("extend", folder)
    assert code == 2
    assert "Missing option '--trials'" in err


def test_a_folder_that_holds_no_search_is_refused(tunebook: Tunebook, tmp_path: Path) -> None:
    code, _, err = tunebook("extend", tmp_path / "nothing", "--trials", "2")
    assert code == 2
    assert "nothing" in err
    assert "Traceback" not in err


def test_a_search_that_another_driver_is_at_work_on_is_refused(tunebook: Tunebook, folder: Path) -> None:
    before = (folder / EVENTS_FILE).read_bytes()
    with locked(folder):
        code, _, err = tunebook("extend", folder, "--trials", "2")
    assert code == 2, err
    assert "another" in err
    assert (folder / EVENTS_FILE).read_bytes() == before


def test_a_search_whose_images_have_changed_is_refused(tunebook: Tunebook, folder: Path) -> None:
    before = (folder / EVENTS_FILE).read_bytes()
    code, _, err = tunebook("extend", folder, "--trials", "2")
    assert code == 2, err
    assert "start a new search" in err
    assert (folder / EVENTS_FILE).read_bytes() == before
