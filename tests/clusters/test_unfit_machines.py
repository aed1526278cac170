"""Machines that do not share the storage, or lack the data, are found before they train.

Ray is started by hand on three hosts; what a test mounts on one of them hides the files below, there alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from search.record.journal import LeftOutEvent, PlaceEvent
from search.study import Study
from tests.clusters.hosts import Hosts
from tests.integration.clusters import STARTS
from tests.integration.small_searches import digits_study, events_in
from tests.trainable.small_images import write_classes
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.ssh]

TUNEBOOK = (sys.executable, "-m", "search")
RAY = Path(sys.executable).with_name("ray")


@dataclass
class Pair:
    """Host 1 is the head and trains nothing, hosts 2 and 3 have one processor each."""

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

    def join(self, host: int) -> None:
        """Start Ray on a host."""
        head = ("--head", "--port=6379", "--include-dashboard=false")
        role = head if host == 1 else (f"--address={self.address}",)
        cpus = 0 if host == 1 else 1
        own = (f"--node-ip-address={self.hosts.address(host)}", f"--num-cpus={cpus}", "--num-gpus=0")
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


@pytest.fixture
def pair(hosts: Hosts, checkout: Path, tmp_path: Path) -> Iterator[Pair]:
    write_classes(tmp_path / "pets", {"cat": 80, "dog": 80})
    (tmp_path / "searches").mkdir()
    found = Pair(hosts, checkout, tmp_path)
    try:
        for host in (1, 2, 3):
            found.join(host)
        yield found
    finally:
        for name in ("searches", "pets"):
            for host in (2, 3):
                found.show(host, name)
        for host in (3, 2, 1):
            found.leave(host)


def test_machines_that_cannot_train_are_refused_left_out_or_found_as_they_join(pair: Pair) -> None:
    pair.hide(2, "searches")
    pair.hide(3, "pets")
    pair.study("both", budget__trials=1).write(pair.folder)
    checked = pair.tunebook("check", pair.folder / "study.yaml")
    assert checked.returncode == 1
    said = " ".join(checked.stdout.split())
    assert re.search(r"t2 \(.*it does not share the storage .*/searches with the head", said)
    assert re.search(r"t3 \(.* images of data.path .*/pets cannot be read", said)
    refused = pair.tunebook("search", pair.folder / "study.yaml")
    assert refused.returncode == 2
    assert "machine t2 (" in refused.stderr
    assert not (pair.folder / "searches" / "both").exists()

    pair.show(2, "searches")
    study = pair.study("others", budget__trials=3, budget__epochs=3000)
    study.with_values({"machines.unfit": "leave_out"}).write(pair.folder)
    log = pair.folder / "said.log"
    search = pair.starts("search", pair.folder / "study.yaml", log=log)
    folder = pair.folder / "searches" / "others"
    wait_until(lambda: any(each.event == "epoch" for each in events_in(folder)), fault=log.read_text)
    pair.leave(3)
    pair.join(3)  # another machine for Ray, which is still without the data
    wait_until(lambda: left_out_count(folder) == 2, fault=log.read_text)
    pair.leave(3)
    pair.show(3, "pets")
    pair.join(3)
    wait_until(lambda: "t3" in machines_of(folder), fault=log.read_text)
    search.terminate()
    search.wait()
    assert machines_of(folder) == {"t2", "t3"}
    shown = pair.hosts.run(1, *TUNEBOOK, "show", folder, **pair.variables).stdout
    assert "t3 (" in shown
    assert "left out" not in shown, "it has come back with the data"
    assert log.read_text().count("left out, since") == 2
    assert not [each for each in events_in(folder) if each.event == "retry"], "they cost no trial anything"


def left_out_count(folder: Path) -> int:
    return sum(isinstance(each, LeftOutEvent) for each in events_in(folder))


def machines_of(folder: Path) -> set[str]:
    places = [each for each in events_in(folder) if isinstance(each, PlaceEvent)]
    return {rank.machine for each in places for rank in each.ranks}
