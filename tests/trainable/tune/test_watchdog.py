"""Tests that the watchdog ends a process whose work hangs, with a note that says why."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainable.tune.watchdog import NOTE, TRACE, Watchdog, pop_reason

FRAME = """
import os, re, sys, time
from pathlib import Path
from trainable.tune.watchdog import Watchdog
with Watchdog(0.2, Path(sys.argv[1]), int(sys.argv[2])) as watchdog:
    {}
"""
SLEEP = "time.sleep(60)"
HOLD_THE_GIL = (
    "re.match(r'(a+)+$', 'a' * 40 + 'b')"  # a catastrophic expression: hours without the interpreter
)


BEATING = "for _ in range(30): time.sleep(0.02); watchdog.beat()"


def under_watchdog(work: str, folder: Path, rank: int = 0) -> int:
    code = [sys.executable, "-c", FRAME.format(work), str(folder), str(rank)]
    return subprocess.run(code, check=False, timeout=30).returncode


@pytest.mark.parametrize("work", [SLEEP, HOLD_THE_GIL], ids=["asleep", "holding the GIL"])
def test_work_that_hangs_ends_the_process_with_a_note_and_a_trace(tmp_path: Path, work: str) -> None:
    began = time.monotonic()
    assert under_watchdog(work, tmp_path) == 1  # faulthandler's own exit code
    assert time.monotonic() - began < 20
    assert 'File "<string>", line 6' in (tmp_path / TRACE).read_text()
    assert pop_reason(tmp_path) == "no batch was done for more than limits.step_seconds = 0.2 s"


def test_work_that_gives_signs_may_take_longer_than_the_limit(tmp_path: Path) -> None:
    assert under_watchdog(BEATING, tmp_path) == 0
    assert under_watchdog(f"{BEATING}\n    {SLEEP}", tmp_path) == 1
    assert pop_reason(tmp_path) is not None


def test_each_rank_has_a_note_of_its_own_and_makes_no_folder(tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir()
    assert under_watchdog(SLEEP, here, rank=1) == 1
    assert pop_reason(here) is not None
    assert [each.name for each in here.iterdir()] == ["watchdog-1.txt"]
    assert under_watchdog(SLEEP, tmp_path / "another machine's", rank=1) == 1
    assert list(tmp_path.iterdir()) == [here]


def test_a_note_is_taken_once(tmp_path: Path) -> None:
    under_watchdog(SLEEP, tmp_path)
    assert pop_reason(tmp_path) is not None
    assert pop_reason(tmp_path) is None


def test_the_note_of_a_process_that_died_of_something_else_does_not_count(tmp_path: Path) -> None:
    assert under_watchdog("os._exit(9)", tmp_path) == 9
    assert (tmp_path / NOTE).exists()
    assert pop_reason(tmp_path) is None


def test_work_that_ends_in_time_is_left_alone(tmp_path: Path) -> None:
    with Watchdog(0.05, tmp_path):
        pass
    time.sleep(0.15)
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_the_context_in_time_too(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Watchdog(60.0, tmp_path):
        raise KeyError("no such layer")
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_attempt_s_stacks_are_not_taken_for_a_later_one_s(tmp_path: Path) -> None:
    under_watchdog(SLEEP, tmp_path)
    under_watchdog("os._exit(9)", tmp_path)
    assert pop_reason(tmp_path) is None
