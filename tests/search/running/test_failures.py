"""Tests why a trial failed, from the text that Ray writes, and how often it is tried again."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from ray.tune.experiment import Trial

from search.running.failures import Retries, failure


def test_losses_of_machines_use_up_no_retry_of_crashes() -> None:
    retries = Retries(crashes=1, losses=3)
    assert [retries.again(0, "infrastructure") for _ in range(3)] == [True] * 3
    assert retries.again(0, "crash")
    assert not retries.again(0, "crash")
    assert not retries.again(0, "preempted"), "a fourth loss"


def test_each_trial_has_budgets_of_its_own() -> None:
    retries = Retries(crashes=0, losses=1)
    assert not retries.again(0, "crash")
    assert retries.again(1, "preempted")
    assert retries.again(2, "infrastructure")
    assert not retries.again(2, "preempted")


TEXT = """Failure # 1 (occurred at 2026-11-22_10-00-00)
ray::Trainable.train()
  File "/x/trial.py", line 1, in step
    raise ValueError("first")
ValueError: first
Failure # 2 (occurred at 2026-11-22_10-01-00)
ray::Trainable.train()
  File "/x/trial.py", line 1, in step
    raise ValueError("second")
trainable.errors.RunError: second
"""
UNKNOWN = "the trial's process could not be started"


def trial(file: Path) -> Trial:
    """All that is read of Ray's trial."""
    return cast(Trial, SimpleNamespace(error_file=str(file)))


def test_the_newest_error_is_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "error.txt"
    file.write_text(TEXT)
    reason, whole = failure(trial(file))
    assert reason == "RunError: second"
    assert "first" not in whole


@pytest.mark.timeout(60)
def test_a_pipe_or_a_link_in_its_place_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(TEXT)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "nothing"):
        assert failure(trial(tmp_path / name)) == (UNKNOWN, "")
