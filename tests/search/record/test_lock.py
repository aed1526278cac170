"""Tests the lock on a search's folder: one process has it, a killed one loses it, and no file is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from search.record.home import EVENTS_FILE, FACTS_FILE, LOCK_FILE, names_below
from search.record.journal import read
from search.record.lock import LockedError, is_locked, locked
from search.study import STUDY_FILE
from trainable.errors import UserError


@pytest.mark.usefixtures("refused_at_once")
def test_a_second_process_is_refused_and_learns_who_has_the_lock(tmp_path: Path) -> None:
    with locked(tmp_path):
        (tmp_path / STUDY_FILE).touch()
        message = f"is running already, in process {os.getpid()} on "
        with pytest.raises(LockedError, match=message), locked(tmp_path):
            pass
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        pass


def test_looking_whether_a_driver_is_alive_makes_no_file(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(60)
def test_looking_does_not_wait_for_a_pipe_in_the_locks_place(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK_FILE)
    assert not is_locked(tmp_path)


def test_a_folder_that_never_became_a_search_is_removed_with_those_made_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "searches" / "mine"
    with locked(folder):
        (folder / FACTS_FILE).touch()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_keeps_all_but_the_lock(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / FACTS_FILE).touch()
    with locked(tmp_path):
        assert is_locked(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"letters", FACTS_FILE}


def test_a_search_keeps_its_lock_file(tmp_path: Path) -> None:
    with locked(tmp_path / "mine"):
        (tmp_path / "mine" / STUDY_FILE).touch()
    assert {each.name for each in (tmp_path / "mine").iterdir()} == {LOCK_FILE, STUDY_FILE}


def test_those_who_wait_while_a_folder_comes_and_goes_have_it_one_at_a_time(tmp_path: Path) -> None:
    """Each makes the folder and removes it again: none may lock a file that is no longer in the folder."""
    inside: list[int] = []
    together: list[int] = []

    def take_turns() -> None:
        for _ in range(40):
            try:
                with locked(tmp_path / "searches" / "mine"):
                    inside.append(1)
                    together.append(len(inside))
                    inside.pop()
            except LockedError:
                pass

    threads = [threading.Thread(target=take_turns) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(together) == {1}
    assert names_below(str(tmp_path / "searches")) == []


@pytest.mark.parametrize("name", ["a file", "a file/mine"])
def test_what_cannot_be_a_folder_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(UserError, match="cannot be written to: Not a directory"), locked(tmp_path / name):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["a file"]


def test_a_read_only_folder_is_refused_in_one_line_even_where_a_lock_is_there(tmp_path: Path) -> None:
    """The kernel itself refuses, in a process of the user nobody: root may write anywhere."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / LOCK_FILE).touch()
    (folder / LOCK_FILE).chmod(0o666)
    folder.chmod(0o555)
    for above in list(folder.parents)[:-2]:
        above.chmod(above.stat().st_mode | 0o111)
    code = f"""
import os
from pathlib import Path
from search.record.lock import locked
if os.getuid() == 0:
    os.setuid(65534)
with locked(Path({str(folder)!r})):
    pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"{folder}: cannot be written to: Permission denied" in done.stderr.splitlines()[-1]


def test_a_killed_driver_loses_its_lock_and_no_event(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from search.record.journal import Journal, StartEvent
from search.record.lock import locked
with locked(Path({str(tmp_path)!r})), Journal({str(tmp_path)!r}) as journal:
    for attempt in range(1, 6):
        journal.append(StartEvent(trial=0, attempt=attempt, epoch=0))
    print("ready", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"ready\n"
        assert is_locked(tmp_path)
        driver.send_signal(signal.SIGKILL)
    assert not is_locked(tmp_path)
    assert len(read(tmp_path / EVENTS_FILE)) == 5
