"""Tests that a run of the tests leaves no process and no file, however it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.processes import command_of
from tests.session import VARIABLE
from tests.waiting import wait_until

RUN = """
import signal, subprocess, sys
from tests import session

folder = session.start()
server = subprocess.Popen(["sleep", "1000"], start_new_session=True)
renamed = subprocess.Popen(["sleep", "1000"], env={}, stdout=(folder / "log").open("w"))
silent = subprocess.Popen(["sh", "-c", "exec sleep 1000 >&-"])
print(folder, server.pid, renamed.pid, silent.pid, flush=True)
signal.pause()
"""


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda each: each.name)
def test_what_an_ended_run_has_started_is_gone_with_its_files(number: signal.Signals) -> None:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    with subprocess.Popen(
        [sys.executable, "-c", RUN],
        cwd=Path(__file__).parents[1],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        folder, *started = run.stdout.readline().split()
        assert Path(folder).is_dir()
        run.send_signal(number)
    wait_until(lambda: not Path(folder).exists())
    wait_until(lambda: not [pid for pid in started if command_of(int(pid))])
