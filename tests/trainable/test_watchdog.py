"""The watchdog: work that hangs ends its process, with a note that says why."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from trainable.watchdog import EXIT_CODE, TRACE, Watchdog, take_note

HANG = """
import sys, time
from pathlib import Path
from trainable.watchdog import Watchdog
with Watchdog(0.2, Path(sys.argv[1])):
    time.sleep(60)
"""


def test_work_that_hangs_ends_the_process_with_a_note_and_a_trace(tmp_path: Path) -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", HANG, str(tmp_path)], check=False, timeout=30)
    assert done.returncode == EXIT_CODE
    assert time.monotonic() - began < 20
    assert "time.sleep" not in (tmp_path / TRACE).read_text()  # stacks name files and lines, not source
    assert 'File "<string>", line 6' in (tmp_path / TRACE).read_text()
    assert take_note(tmp_path) == "an epoch took more than limits.step_seconds = 0.2 s"


def test_a_note_is_taken_once(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", HANG, str(tmp_path)], check=False, timeout=30)
    assert take_note(tmp_path) is not None
    assert take_note(tmp_path) is None


def test_work_that_ends_in_time_is_left_alone(tmp_path: Path) -> None:
    with Watchdog(0.05, tmp_path):
        pass
    time.sleep(0.15)
    assert list(tmp_path.iterdir()) == []
