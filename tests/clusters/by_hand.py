"""Starts Ray by hand on three hosts. What a test mounts on one of them hides the files below, there alone."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from search.study import Study
from tests.clusters.hosts import Hosts
from tests.integration.clusters import STARTS
from tests.integration.small_searches import digits_study

TUNEBOOK = (sys.executable, "-m", "search")
RAY = Path(sys.executable).with_name("ray")


@dataclass
class ByHand:
    """Ray on three hosts: 1 is the head and trains nothing, 2 and 3 train."""

    hosts: Hosts
    checkout: Path
    folder: Path

    @property
    def address(self) -> str:
        return f"{self.hosts.address(1)}:6379"

    @property
    def variables(self) -> dict[str, str]:
        own = {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(self.checkout), "COLUMNS": "400"}
        return {**own, "XDG_CACHE_HOME": str(self.folder / "cache")}

    def join(self, host: int, cpus: int = 1) -> None:
        """Start Ray on a host, of so many processors."""
        head = ("--head", "--port=6379", "--include-dashboard=false", "--no-monitor")
        role = head if host == 1 else (f"--address={self.address}",)
        own = (
            f"--node-ip-address={self.hosts.address(host)}",
            f"--num-cpus={cpus}",
            "--num-gpus=0",
            "--include-log-monitor=false",  # nothing is read from it
        )
        for _ in range(STARTS):
            done = self.hosts.run(host, RAY, "start", *role, *own, "--disable-usage-stats", **self.variables)
            if done.returncode == 0:
                return
            self.leave(host)
        raise AssertionError(done.stdout + done.stderr)

    def leave(self, host: int) -> None:
        """End Ray on a host at once."""
        self.hosts.run(host, "pkill", "-9", "raylet|gcs_server|ray::")

    def tunebook(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return self.hosts.run(1, *TUNEBOOK, *words, "--address", self.address, **self.variables)

    def starts(self, *words: str | Path, log: Path) -> subprocess.Popen[bytes]:
        command = (*TUNEBOOK, *words, "--address", self.address)
        return self.hosts.popen(1, *command, out=log, **self.variables)

    def study(self, name: str, **values: object) -> Study:
        """A study of image files, which lie in a folder that hosts share."""
        study = digits_study(self.folder / "searches", name=name, concurrent=None, **values)
        data = {"data.path": str(self.folder / "pets"), "data.in_memory": False, "data.image_size": 16}
        return study.with_values({**data, "scheduler.kind": "none"})

    def hide(self, host: int, name: str) -> None:
        self.hosts.run(host, "mount", "-t", "tmpfs", "none", self.folder / name)

    def show(self, host: int, name: str) -> None:
        self.hosts.run(host, "umount", self.folder / name)
