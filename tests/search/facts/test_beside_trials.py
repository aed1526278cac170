"""Tests what a search takes beside its trials: by its results' times, and as the last ones here took."""

from __future__ import annotations

from pathlib import Path

import pytest

from search.facts.beside_trials import KEEP, BesideTrials, add_beside, beside_of, last_beside
from search.record.journal import EpochEvent
from search.record.trials import Trial
from tests.epoch_results import epoch_result


def trial(number: int, *times: float) -> Trial:
    history = tuple(
        EpochEvent(trial=number, time=at, result=epoch_result(epoch, 0.9, epoch_seconds=3.0))
        for epoch, at in enumerate(times, start=1)
    )
    return Trial(id=number, values={}, history=history)


def took(seconds: float) -> BesideTrials:
    return BesideTrials(start_seconds=seconds, end_seconds=2 * seconds)


def test_the_start_ends_with_the_first_epoch_and_the_end_begins_with_the_last_result() -> None:
    trials = [trial(0, 130.0, 140.0), trial(1, 120.0), trial(2)]
    found = beside_of(trials, told=100.0, ended=145.0)
    assert found == BesideTrials(start_seconds=17.0, end_seconds=5.0)
    assert beside_of([trial(2)], told=100.0, ended=145.0) is None


def test_the_next_search_is_expected_to_take_what_the_last_ones_on_such_a_device_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert last_beside("cpu") is None
    for seconds in (50.0, 1.0, 9.0):
        add_beside("cpu", took(seconds))
    assert last_beside("cpu") == took(9.0)
    assert last_beside("cuda") is None
    for _ in range(KEEP):
        add_beside("cpu", took(4.0))
    assert last_beside("cpu") == took(4.0)
    (file,) = (tmp_path / "tunebook" / "runs").iterdir()
    file.write_text("[")
    assert last_beside("cpu") is None
