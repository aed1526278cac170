"""A Ray cluster of several nodes, each with processes and folders of its own, as `ray start` makes one."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.drivers import machine
from tests.s3_server import KEYS
from tests.waiting import PATIENCE_SECONDS

RAY = Path(sys.executable).with_name("ray")
ROOT = Path(__file__).parents[2]
NODES = ("node-0", "node-1")
STARTS = 3


@dataclass
class Cluster:
    """A head without processors, and two nodes with two each, which ask for a token."""

    folder: Path
    token: str
    port: int
    dashboard_port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def dashboard(self) -> str:
        return f"http://127.0.0.1:{self.dashboard_port}"

    def tunebook(self, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """What `tunebook ARGUMENTS` does on a laptop that has the token."""
        return tunebook(*arguments, RAY_AUTH_TOKEN=self.token, **variables)

    def start(self, name: str, *arguments: str) -> None:
        """Start a node without keys to any store, again where Ray gives it up, as it does after 30 s."""
        log = self.folder / f"{name}.log"
        for _ in range(STARTS):
            if self._runs(name, log, *arguments):
                return
        raise AssertionError(f"{name} did not start:\n{log.read_text(errors='replace')}")

    def _runs(self, name: str, log: Path, *arguments: str) -> bool:
        """Whether Ray says, in the end, that a node that is started now runs."""
        environment = {
            **{name: value for name, value in os.environ.items() if name not in KEYS},
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            **machine(self.folder / f"machine-{name}"),
        }
        own = [f"--temp-dir={self.folder / name}", f"--dashboard-agent-listen-port={free_port()}"]
        own += ["--include-log-monitor=false"]  # Ray wants one on a machine at most; nothing is read from it
        command = [str(RAY), "start", *arguments, *own, "--block"]
        with log.open("wb") as out:
            self.processes[name] = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        while "Ray runtime started" not in log.read_text(errors="replace"):
            if self.processes[name].poll() is not None:
                self.kill(name)
                return False
            time.sleep(0.1)
        return True

    def start_nodes(self) -> None:
        """Start the nodes that are not there: at first both, later one that a test has killed."""
        for name in NODES:
            if name not in self.processes:
                self.start(name, f"--address={self.address}", "--num-cpus=2", "--num-gpus=0")

    def kill(self, name: str) -> None:
        """SIGKILL to all of a node's processes, as when its machine is taken away with its disk."""
        process = self.processes.pop(name)
        for _ in range(3):  # what one of them has started meanwhile goes too
            for pid in _in_session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(self.folder / f"machine-{name}", ignore_errors=True)

    def end(self) -> None:
        for name in reversed(list(self.processes)):
            self.kill(name)


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """A cluster for the block, without nodes and without an autoscaler.

    Its folder has a short path: Ray's sockets lie in it.
    """
    cluster = Cluster(folder, secrets.token_hex(32), free_port(), free_port())
    try:
        cluster.start(
            "head",
            *("--head", f"--port={cluster.port}", "--num-cpus=0", "--num-gpus=0", "--no-monitor"),
            f"--dashboard-port={cluster.dashboard_port}",
        )
        yield cluster
    finally:
        cluster.end()


def tunebook(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """`tunebook ARGUMENTS` in a process of its own, from a folder that holds nothing of the project."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    return subprocess.run(
        [sys.executable, "-m", "search", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**plain, "PYTHONPATH": str(ROOT), **variables},
        check=False,
    )


def _in_session(leader: int) -> list[int]:
    """The processes of a session; Ray's workers have groups of their own in it."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with suppress(ProcessLookupError):
            if os.getsid(pid) == leader:
                found.append(pid)
    return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
