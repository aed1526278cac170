"""Tests that temporary folders are removed, also those of processes that were killed, and nothing else is."""

from __future__ import annotations

import errno
import os
import signal
import stat
from pathlib import Path

import pytest

from trainable.errors import UserError
from trainable.files.folders import PREFIX, check_new, locked_folder, moved_to, new_file, temporary_folder
from trainable.processes import ended_by_signals


def grow_old(folder: Path) -> None:
    os.utime(folder, (0, 0))


def abandoned(root: Path, prefix: str = PREFIX) -> Path:
    """Return a folder that a process has made which was killed: its lock is gone."""
    made = locked_folder(root, prefix)
    assert made.lock is not None
    os.close(made.lock)
    (made.path / "file").touch()
    grow_old(made.path)
    return made.path


def test_a_folder_is_this_user_s_alone_and_goes_with_its_block(tmp_path: Path) -> None:
    with temporary_folder(root=tmp_path) as folder:
        (folder / "file").touch()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with pytest.raises(ValueError, match="wrong"), temporary_folder(root=tmp_path):
        raise ValueError("wrong")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_has_left_goes_with_the_next_folder_that_is_made(tmp_path: Path) -> None:
    left = abandoned(tmp_path)
    with temporary_folder(root=tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert not left.exists()


def test_what_is_in_use_or_new_or_another_s_stays(tmp_path: Path) -> None:
    used = locked_folder(tmp_path, PREFIX)
    new, linked, file, mine = (
        tmp_path / each for each in (f"{PREFIX}new", f"{PREFIX}link", f"{PREFIX}file", "mine")
    )
    new.mkdir()
    mine.mkdir()
    file.touch()
    linked.symlink_to(mine)
    for each in (used.path, file, mine):
        grow_old(each)
    with temporary_folder(root=tmp_path):
        assert all(each.exists() for each in (used.path, new, linked, file, mine))
    used.close()


def test_half_a_new_folder_that_a_kill_has_left_goes_when_any_is_written_beside_it(tmp_path: Path) -> None:
    with moved_to(tmp_path / "first") as half:
        prefix = half.name[: -len("01234567")]
    (tmp_path / "first").rmdir()
    left, other = abandoned(tmp_path, prefix), abandoned(tmp_path, ".bundle.mine-")
    with moved_to(tmp_path / "bundle") as folder:
        (folder / "README.md").touch()
    assert not left.exists()
    assert {each.name for each in tmp_path.iterdir()} == {"bundle", other.name}
    assert stat.S_IMODE((tmp_path / "bundle").stat().st_mode) == 0o755


def test_half_a_new_folder_of_another_machine_stays_as_its_lock_may_not_reach_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "other")
    with moved_to(tmp_path / "first") as half:
        left = abandoned(tmp_path, half.name[: -len("01234567")])
    monkeypatch.setattr("socket.gethostname", lambda: "this")
    with moved_to(tmp_path / "second"):
        pass
    assert left.exists()


def test_an_empty_folder_is_filled_and_not_replaced(tmp_path: Path) -> None:
    """It may be a disk of its own, which nothing can be renamed over."""
    out = tmp_path / "disk"
    out.mkdir()
    before = out.stat()
    with moved_to(out) as half:
        abandoned(out, half.name[: -len("01234567")])
    check_new(out, "the bundle")
    with moved_to(out, last="a") as half:
        for name in "abc":
            (half / name).mkdir()
        (half / "a/file").touch()
        assert half.parent == out
    assert sorted(each.name for each in out.iterdir()) == ["a", "b", "c"]
    assert (out / "a/file").is_file()
    assert (out.stat().st_ino, out.stat().st_mode) == (before.st_ino, before.st_mode)
    with pytest.raises(UserError, match="exists already; give a new folder for the bundle"):
        check_new(out, "the bundle")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_that_another_command_fills_meanwhile_stays_as_that_has_left_it(
    tmp_path: Path, is_there: bool
) -> None:
    out = tmp_path / "bundle"
    if is_there:
        out.mkdir()

    def write_late() -> None:
        with moved_to(out) as half, moved_to(out) as other:
            (half / "README.md").write_text("late")
            (other / "README.md").write_text("first")

    with pytest.raises(UserError, match="has filled it meanwhile; give a new folder"):
        write_late()
    assert [each.name for each in out.iterdir()] == ["README.md"]
    assert (out / "README.md").read_text() == "first"


def test_a_disk_without_locks_is_no_fault_and_keeps_no_descriptor_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    left = abandoned(tmp_path)
    monkeypatch.setattr("fcntl.flock", unsupported)
    before = os.listdir("/proc/self/fd")
    with temporary_folder(root=tmp_path) as folder:
        assert folder.is_dir()
    assert os.listdir("/proc/self/fd") == before
    assert list(tmp_path.iterdir()) == [left]


def test_a_signal_that_comes_while_a_folder_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def signalled(descriptor: int, operation: int) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("fcntl.flock", signalled)
    with pytest.raises(SystemExit), ended_by_signals(), temporary_folder(root=tmp_path):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "force", "expected"),
    [
        ("copies.parquet", False, "expected a name that ends in .csv or .tsv"),
        ("copies", False, "expected a name that ends in .csv or .tsv"),
        ("there.csv", False, "exists already; give another name, or --force to overwrite it"),
        ("there.csv", None, "exists already; give another name, or remove it"),
        ("link.csv", False, "exists already"),
        ("folder.csv", True, "is a folder; give a file"),
        ("there.csv/new.csv", True, "cannot be made: .*there.csv is a file"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_by_the_option_that_names_it(
    tmp_path: Path, name: str, force: bool | None, expected: str
) -> None:
    (tmp_path / "there.csv").touch()
    (tmp_path / "link.csv").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UserError, match=f"^-o:? .*{expected}"):
        new_file("-o", tmp_path / name, force=force, endings=(".csv", ".tsv"))


def test_a_new_file_may_be_in_a_new_folder_of_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "there.csv").touch()
    assert new_file("-o", Path("~/new/a.csv"), force=False) == tmp_path / "new/a.csv"
    assert new_file("-o", Path("~/there.csv"), force=True) == tmp_path / "there.csv"
    with pytest.raises(UserError, match="exists already"):
        new_file("-o", Path("~/there.csv"), force=False)
