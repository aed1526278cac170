"""What one run of the tests leaves behind when it ends: nothing, however it is ended.

    python -IS session.py FOLDER PID     waits for the end of process PID, then clears up

All temporary files of a run lie in one folder, which the environment of every process that it starts names:
clusters, servers, browsers, drivers. A run that finishes, or is interrupted, has ended them itself. This
process looks afterwards, also after a SIGKILL: it kills what is left, and removes the folder.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

VARIABLE = "TUNEBOOK_TESTS_FOLDER"
LONGEST_SECONDS = 60.0  # a file that cannot be removed after so long stays


def start() -> Path:
    """Make the folder of this run's temporary files, which pytest-xdist's processes share, and watch it."""
    if VARIABLE not in os.environ:
        # pytest keeps the folders of three runs where they are, for a person who looks into a failure.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        folder = tempfile.mkdtemp(prefix="tb-", dir="/tmp")  # short: Ray's sockets lie below
        os.chmod(folder, 0o711)  # PostgreSQL runs as a user of its own
        os.environ.update({VARIABLE: folder, "TMPDIR": folder, "RAY_TMPDIR": folder})
        tempfile.tempdir = None  # it is read again
        watch(folder)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the run as Ctrl-C does
    return Path(os.environ[VARIABLE])


def watch(folder: str) -> subprocess.Popen[bytes]:
    """Start the process that clears up after this one."""
    return subprocess.Popen(
        [sys.executable, "-IS", __file__, folder, str(os.getpid())],
        cwd="/",
        start_new_session=True,  # a signal for the run, from a terminal or from make, is not for it
    )


def clear_up(folder: str) -> None:
    """Kill the processes that name the folder and remove it, again for what they have started meanwhile."""
    until = time.monotonic() + LONGEST_SECONDS
    while (found := processes_of(folder)) or (Path(folder).exists() and time.monotonic() < until):
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for disk in disks_in(folder):
            subprocess.run(["umount", "--lazy", disk], check=False)
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.1)


def disks_in(folder: str) -> list[str]:
    """The file systems that tests have mounted in a folder, the newest first."""
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [place for place in reversed(places) if place.startswith(f"{folder}/")]


def processes_of(folder: str) -> list[int]:
    """The processes whose environment or output names a folder: some of Ray's overwrite part of the first."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        named = b""
        with suppress(OSError):  # it has ended, or is another person's
            named += Path(f"/proc/{pid}/environ").read_bytes()
            named += os.readlink(f"/proc/{pid}/fd/1").encode()  # some have closed it
        if folder.encode() in named and pid != os.getpid():
            found.append(pid)
    return found


if __name__ == "__main__":
    folder, pid = sys.argv[1:]
    with suppress(ProcessLookupError):  # it has ended already
        select.select([os.pidfd_open(int(pid))], [], [])  # readable once that process has ended
    clear_up(folder)
