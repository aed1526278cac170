"""Tests what is said of CUDA's MPS, by sockets like its daemon's."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from trainable.checks.sharing import FOLDER, check_sharing, is_listening


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A socket's path may have 107 characters, and pytest's own folders have more."""
    with TemporaryDirectory(dir="/tmp") as made:
        monkeypatch.setenv(FOLDER, made)
        yield Path(made)


def test_a_daemon_is_found_and_hears_nothing(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        daemon.bind(str(folder / "control"))
        daemon.listen()
        daemon.setblocking(False)
        found = check_sharing()
        with pytest.raises(BlockingIOError):
            daemon.accept()
    assert (found.level, str(folder) in found.what) == ("note", True)
    assert "ends every trial on it" in found.means


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
def test_every_kind_of_socket_is_known(folder: Path, kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_UNIX, kind) as daemon:
        daemon.bind(str(folder / "control"))
        if kind is not socket.SOCK_DGRAM:
            daemon.listen()
        assert is_listening(folder / "control")


def test_what_a_killed_daemon_leaves_is_no_daemon(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        daemon.bind(str(folder / "control"))
        daemon.listen()
    assert (folder / "control").is_socket()
    found = check_sharing()
    assert (found.level, "no MPS daemon" in found.what) == ("passed", True)


@pytest.mark.parametrize("made", [None, "file", "folder"])
def test_other_files_are_no_daemon(folder: Path, made: str | None) -> None:
    if made == "file":
        (folder / "control").write_text("")
    if made == "folder":
        (folder / "control").mkdir()
    assert not is_listening(folder / "control")
    assert not is_listening(folder / "none" / ("x" * 200))
