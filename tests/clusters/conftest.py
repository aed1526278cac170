"""Gives tests of launchers three hosts on this machine, where they can be made."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.hosts import MISSING, PROGRAMS, SLURM_PROGRAMS, Hosts, running, why_not

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    """Three hosts. They have Slurm where its programs are."""
    if reason := why_not(PROGRAMS):
        _skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="hosts-"))
    try:
        with running(folder, 3, has_slurm=why_not(SLURM_PROGRAMS) is None) as found:
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def slurm(hosts: Hosts) -> Hosts:
    if reason := why_not(SLURM_PROGRAMS):
        _skip(reason)
    return hosts


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout as the launchers expect one: with the environment of these tests as its .venv."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / ".venv").symlink_to(sys.prefix)
    for name in ("deploy", "search", "spaces", "trainable"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def _skip(reason: str) -> None:
    """Skip a test, unless everything must be tried here and a program alone is missing."""
    if os.environ.get("TUNEBOOK_ALL_SERVERS") and reason.startswith(MISSING):
        pytest.fail(reason)
    pytest.skip(reason)
