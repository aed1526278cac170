"""Forks the processes that send searches to MLflow, from one that has imported what they need.

In a search of the product each imports MLflow and torch anew: that is most of what it computes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Client, Listener
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path

import psutil

from search.followers import following
from tests.integration.forks import FORKS
from tests.waiting import wait_until


class Forked:
    """What `Following` asks of a `subprocess.Popen`, for a process that is no child of this one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._process = psutil.Process(pid)

    def poll(self) -> int | None:
        if not self._process.is_running():
            self.returncode = -signal.SIGKILL  # as good as any: only a parent knows it
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        try:
            self._process.wait(timeout)
        except psutil.TimeoutExpired:
            raise subprocess.TimeoutExpired("follow", timeout or 0.0) from None
        return self.poll()

    def kill(self) -> None:
        with suppress(psutil.NoSuchProcess):
            self._process.kill()


@cache
def address() -> str:
    """Return where this run's server of such processes is asked for one; the first call starts it."""
    folder = tempfile.mkdtemp(prefix="followers-")
    FORKS.Process(target=_serve, args=(f"{folder}/socket",), daemon=True).start()
    wait_until(Path(folder, "socket").exists)
    return f"{folder}/socket"


def started_by(server: Callable[[], str]) -> Callable[[int, Path], Forked]:
    """Return what takes the place of `following.start_process`; `server` returns where it is asked for."""

    def start_process(handle: int, log: Path) -> Forked:
        with Client(server(), "AF_UNIX") as line:
            line.send((dict(os.environ), os.getcwd(), log))
            send_handle(line, handle, None)
            return Forked(line.recv())

    return start_process


def _serve(server: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets those that have ended
    with Listener(server, "AF_UNIX") as door:
        while True:
            with door.accept() as line:
                variables, folder, log = line.recv()
                handle = recv_handle(line)
                if (pid := os.fork()) == 0:
                    line.close()
                    _follow(handle, variables, folder, log)
                os.close(handle)
                line.send(pid)


def _follow(handle: int, variables: Mapping[str, str], folder: str, log: Path) -> None:
    """Become the process that `following.start_process` starts."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nowhere, said = os.open(os.devnull, os.O_RDWR), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for standard, file in enumerate((nowhere, nowhere, said)):
        os.dup2(file, standard)
    sys.argv[1:] = [str(handle), following.INSTALLED]
    exec(following.PROGRAM, {})
