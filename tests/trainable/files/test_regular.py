"""Tests that what is no regular file is neither waited for nor written through."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainable.errors import UserError
from trainable.files.locks import FolderLock
from trainable.files.regular import NotRegular, check_no_link, open_to_write, read_regular, refuse_links
from trainable.tune.watchdog import Watchdog

APPENDED = os.O_WRONLY | os.O_CREAT | os.O_APPEND


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    file = tmp_path / "precious"
    file.write_text("mine")
    return file


@pytest.mark.parametrize("flags", [APPENDED, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_TRUNC])
def test_a_link_is_not_written_through(tmp_path: Path, precious: Path, flags: int) -> None:
    (tmp_path / "link").symlink_to(precious)
    (tmp_path / "to nothing").symlink_to(tmp_path / "new")
    for name in ("link", "to nothing"):
        with pytest.raises(NotRegular, match="is a link; expected a regular file"):
            open_to_write(tmp_path / name, flags)
    assert precious.read_text() == "mine"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("flags", [APPENDED, os.O_RDWR | os.O_CREAT])
def test_a_named_pipe_is_not_waited_for(tmp_path: Path, flags: int) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"is a named pipe|No such device"):
        open_to_write(tmp_path / "pipe", flags)
    with pytest.raises(NotRegular, match="is a named pipe"):
        read_regular(tmp_path / "pipe", most=10)


def test_a_regular_file_is_made_and_opened_and_a_folder_is_not(tmp_path: Path) -> None:
    for text in (b"a", b"b"):
        handle = open_to_write(tmp_path / "file", APPENDED)
        os.write(handle, text)
        os.close(handle)
    assert (tmp_path / "file").read_bytes() == b"ab"
    check_no_link(tmp_path / "file")
    check_no_link(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        open_to_write(tmp_path, os.O_WRONLY)


@pytest.mark.parametrize("name", ["link", "trials/link", "trials/0000/link"])
def test_a_link_at_any_depth_of_a_folder_is_refused_with_its_path(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "search"
    (folder / "trials" / "0000").mkdir(parents=True)
    (tmp_path / "alias").symlink_to(folder)
    refuse_links(tmp_path / "alias")
    (folder / name).symlink_to(tmp_path)
    with pytest.raises(UserError, match=rf"{name}: is a link.*remove it"):
        refuse_links(folder)


@pytest.mark.parametrize("name", [".lock", "watchdog.json", "watchdog.txt"])
def test_a_trial_writes_through_no_link_in_its_folder(tmp_path: Path, precious: Path, name: str) -> None:
    folder = tmp_path / "trial"
    folder.mkdir()
    (folder / name).symlink_to(precious)
    with pytest.raises(NotRegular), Watchdog(60, folder):
        FolderLock(folder)
    assert precious.read_text() == "mine"
