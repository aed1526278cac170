"""Gives tests of launchers three hosts on this machine, where they can be made."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.clusters.by_hand import ByHand
from tests.clusters.hosts import PROGRAMS, SLURM_PROGRAMS, Hosts, missing, running, why_not
from tests.missing import stop_without
from tests.trainable.small_images import write_classes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    """Three hosts. They have Slurm where its programs are."""
    _stop_unless(PROGRAMS)
    folder = Path(tempfile.mkdtemp(prefix="hosts-"))
    try:
        with running(folder, 3, has_slurm=missing(SLURM_PROGRAMS) is None) as found:
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def slurm(hosts: Hosts) -> Hosts:
    _stop_unless(SLURM_PROGRAMS)
    return hosts


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout as the launchers expect one: with the environment of these tests as its .venv."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / ".venv").symlink_to(sys.prefix)
    for name in ("deploy", "search", "spaces", "trainable"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture
def by_hand(hosts: Hosts, checkout: Path, tmp_path: Path) -> Iterator[ByHand]:
    """Hosts on which a test starts Ray; all that is left of it ends."""
    write_classes(tmp_path / "pets", {"cat": 80, "dog": 80})
    (tmp_path / "searches").mkdir()
    found = ByHand(hosts, checkout, tmp_path)
    try:
        yield found
    finally:
        for name in ("searches", "pets"):
            for host in (2, 3):
                found.show(host, name)
        for host in (3, 2, 1):
            found.leave(host)


def _stop_unless(programs: Mapping[str, str]) -> None:
    """Skip a test where hosts cannot be made, as `stop_without` does where a program is missing."""
    if reason := why_not():
        pytest.skip(reason)
    if absent := missing(programs):
        stop_without(absent, programs[absent])
