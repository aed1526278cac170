"""Reads in /proc which of Ray's actors other processes are, and who started them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

LISTENS = "0A"  # a socket's state in /proc/net/tcp
# 127.0.0.1, as an address of IPv4 and of IPv6, as the kernel writes it on a little-endian machine
THIS_MACHINE = {"0100007F", "0000000000000000FFFF00000100007F"}


def everyone() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def is_trial(pid: int) -> bool:
    """Ray names an actor's process by its class, of which it makes another one for a trial's resources."""
    title = _read(pid, "cmdline")
    return title.startswith("ray::") and "Trainable" in title


def is_rank(pid: int) -> bool:
    return _read(pid, "cmdline").startswith("ray::Rank")


def processor_seconds(pid: int) -> float:
    """Return how long a process has computed so far."""
    times = _read(pid, "stat").rpartition(")")[2].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK") if times else 0.0


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or dead and not yet waited for."""
    return _read(pid, "stat").rpartition(")")[2].split()[:1] in ([], ["Z"])


def is_below(pid: int, ancestor: int) -> bool:
    """Say whether a process was started by another one, or by what that one started."""
    while pid > 1 and pid != ancestor:
        pid = _parent(pid)
    return pid == ancestor


def children(pid: int) -> list[int]:
    return [each for each in everyone() if _parent(each) == pid]


def name_of(pid: int) -> str:
    """Return the name of a process's program, of which the kernel keeps 15 characters."""
    return _read(pid, "comm").strip()


def command_of(pid: int) -> str:
    return _read(pid, "cmdline").replace("\0", " ")


def listening(pid: int) -> set[str]:
    """Return the addresses at which a process accepts connections, in the kernel's hexadecimal form."""
    sockets = {link[8:-1] for link in _open_files(pid) if link.startswith("socket:")}
    rows = [row.split() for name in ("net/tcp", "net/tcp6") for row in _read(pid, name).splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[3] == LISTENS and row[9] in sockets}


def environment_of(pid: int) -> list[str]:
    """Return the variables with which a process was started; none where it is gone."""
    return [each for each in _read(pid, "environ").split("\0") if each]


def _open_files(pid: int) -> list[str]:
    """Return what a process has open; what is closed meanwhile is left out."""
    found = []
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.append(str(path.readlink()))
    return found


def _parent(pid: int) -> int:
    return int(_read(pid, "status").partition("PPid:")[2].split("\n")[0] or 0)


def _read(pid: int, name: str) -> str:
    """Return nothing where the process is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")  # any bytes may be arguments
    except OSError:
        return ""
