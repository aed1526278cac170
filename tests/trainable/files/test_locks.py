"""Tests the lock of a folder: one process at a time has it, others wait, and it ends with the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainable.files.locks import FolderInUse, FolderLock

HOLD = """
import os, sys, time
from pathlib import Path
from trainable.files.locks import FolderLock
lock = FolderLock(Path(sys.argv[1]))
if sys.argv[2:] == ["with a child"] and os.fork() == 0:
    time.sleep(60)
print(os.getpid(), flush=True)
sys.stdin.read()
lock.release()
print("released", flush=True)
time.sleep(60)
"""


class Holder:
    """A process that locks a folder until `release` is called."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert int(self.process.stdout.readline()) == self.process.pid

    def release(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Holder]:
    holder = Holder(tmp_path)
    yield holder
    holder.process.kill()
    holder.process.wait(10)


def test_a_folder_that_stays_locked_is_an_error_that_names_the_process(held: Holder, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(FolderInUse, match=f"process {held.process.pid} on .* 0.3 s"):
        FolderLock(tmp_path, patience_seconds=0.3)
    assert time.monotonic() - began >= 0.3


def test_a_folder_that_is_released_meanwhile_is_waited_for(held: Holder, tmp_path: Path) -> None:
    timer = threading.Timer(0.3, held.release)
    timer.start()
    began = time.monotonic()
    lock = FolderLock(tmp_path, patience_seconds=20.0)
    assert 0.2 < time.monotonic() - began < 15
    assert held.process.poll() is None
    lock.release()


def test_a_lock_ends_with_its_process(held: Holder, tmp_path: Path) -> None:
    held.process.kill()
    FolderLock(tmp_path, patience_seconds=10.0).release()


def test_a_child_that_outlives_its_parent_does_not_hold_the_lock(tmp_path: Path) -> None:
    holder = Holder(tmp_path, "with a child")
    try:
        holder.process.kill()
        holder.process.wait(10)
        FolderLock(tmp_path, patience_seconds=5.0).release()
    finally:
        os.killpg(holder.process.pid, signal.SIGKILL)


def test_the_folder_is_made_and_can_be_locked_again(tmp_path: Path) -> None:
    for _ in range(2):
        FolderLock(tmp_path / "trials" / "0007", patience_seconds=0.0).release()
