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
from collections.abc import Iterator, Sequence
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
# Drains a node, given by its name, as Ray's autoscaler does
NOTICE = """
import sys
import time

import ray
from ray.core.generated.autoscaler_pb2 import DrainNodeReason

address, name = sys.argv[1:]
ray.init(address=address, log_to_driver=False)
(node,) = (each["NodeID"] for each in ray.nodes() if each["Alive"] and each["NodeName"] == name)
preemption = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
until = int(1000 * time.time()) + 1000
accepted, why = ray._raylet.GcsClient(address=address).drain_node(node, preemption, "spot", until)
assert accepted, why
"""


@dataclass
class Cluster:
    """A head without processors, and two nodes with two each, which ask for a token and have no compiler."""

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
        """Whether Ray says, in the end, that a node that is started now runs, and its agent listens."""
        environment = {
            **{name: value for name, value in os.environ.items() if name not in KEYS},
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            **machine(self.folder / f"machine-{name}"),
            "CXX": "no-compiler-here",
        }
        agent_port = free_port()
        own = [f"--temp-dir={self.folder / name}", f"--dashboard-agent-listen-port={agent_port}"]
        own += [f"--node-name={name}"]
        own += ["--include-log-monitor=false"]  # Ray wants one on a machine at most; nothing is read from it
        command = [str(RAY), "start", *arguments, *own, "--block"]
        with log.open("wb") as out:
            self.processes[name] = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        while "Ray runtime started" not in log.read_text(errors="replace") or not _listens(agent_port):
            if self.processes[name].poll() is not None:
                self.kill(name)
                return False
            time.sleep(0.1)
        return True

    def start_nodes(self, names: Sequence[str] = NODES) -> None:
        """Start the nodes that are not there: at first both, later one that a test has killed."""
        for name in names:
            if name not in self.processes:
                self.start(name, f"--address={self.address}", "--num-cpus=2", "--num-gpus=0")

    def kill(self, name: str) -> None:
        """SIGKILL to all of a node's processes, as when its machine is taken away with its disk.

        All stop first: none lives long enough to tell of another's death."""
        process = self.processes.pop(name)
        for each in (signal.SIGSTOP, signal.SIGKILL, signal.SIGKILL):  # of those started meanwhile too
            for pid in _in_session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, each)
        process.wait()
        shutil.rmtree(self.folder / f"machine-{name}", ignore_errors=True)

    def take_back(self, name: str) -> None:
        """Give Ray the notice that a cloud gives before it takes a machine back, and take the machine."""
        environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}
        command = [sys.executable, "-c", NOTICE, self.address, name]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
        self.kill(name)

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


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
