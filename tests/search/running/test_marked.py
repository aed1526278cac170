"""Tests that a program of others ends with the process that started it, and its folder goes, after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
    with subprocess.Popen(command, env={**os.environ, VARIABLE: str(folder.path)}, stdout=subprocess.DEVNULL):
        print(folder.path, flush=True)
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


NEEDS = """
import os, signal, subprocess, sys, time
from pathlib import Path
from search.running.marked import marked_folder
from search.running.reaper import VARIABLE
with marked_folder("tunebook-test-", Path(sys.argv[1]), "it has died; go on with ...") as folder:
    variables = {**os.environ, VARIABLE: str(folder.path)}
    needed = subprocess.Popen(["sleep", "600"], env=variables, stderr=subprocess.DEVNULL)
    folder.needs([needed.pid])
    if "needed" in sys.argv:
        needed.kill()
        time.sleep(0.5)  # as Ray's C++ code, which ends the driver some time after that
    if "left" not in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (["needed"], "it has died; go on with ...\n"),
        (["needed", "left"], ""),
        ([], ""),
    ],
    ids=["ended with a process that it needs", "said so itself", "killed"],
)
def test_who_cannot_say_any_more_that_a_process_it_needs_has_died_has_it_said(
    what: list[str], said: str, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", NEEDS, tmp_path, *what], stderr=subprocess.PIPE, text=True, check=False
    )
    assert ended.stderr == said
    wait_until(lambda: not list(tmp_path.iterdir()), every=0.02)
