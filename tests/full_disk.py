"""Full disks: files of this process that end at a size, and a small file system, mounted by root."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BLOCK = b"\0" * 4096


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Refuse in the block what would make a file longer than so many bytes; Python ignores the signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """Mounts a tmpfs for the block, or skips the test where that is not allowed."""
    folder = Path(tempfile.mkdtemp(prefix="disk-"))  # not of `tmp_path`: tests/session.py unmounts it at last
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def fill(folder: Path) -> Path:
    """Return a file that takes all the room there is, to the last page."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(BLOCK):
                pass
        except OSError:
            return ballast
    raise AssertionError("a write of nothing")
