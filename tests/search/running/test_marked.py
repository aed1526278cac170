"""Tests that a program of others ends with the process that started it, and its folder goes, after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from search.running import reaper
from tests.waiting import wait_until

STARTS = """
import os, subprocess, sys
from pathlib import Path
from search.running.marked import marked_folder
from search.running.reaper import VARIABLE
with marked_folder("tunebook-test-", Path(sys.argv[1])) as folder:
    # a shell that starts another program: both are marked
    command = ["sh", "-c", "sleep 600; true"]
    with subprocess.Popen(command, env={**os.environ, VARIABLE: str(folder)}, stdout=subprocess.DEVNULL):
        print(folder, flush=True)
"""


def test_all_that_a_killed_process_has_started_ends_and_its_folder_goes(tmp_path: Path) -> None:
    started = subprocess.Popen([sys.executable, "-c", STARTS, tmp_path], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    folder = started.stdout.readline().strip()
    wait_until(lambda: len(reaper.processes_of(folder)) == 2, every=0.02)
    started.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path(folder).exists(), every=0.02)
    assert not reaper.processes_of(folder)
    started.communicate()
