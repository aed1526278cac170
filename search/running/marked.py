"""Marks the processes of programs that are not ours, so that none outlives the process that started them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from search.running import reaper
from trainable.files.temporary import NewFolder, new_folder
from trainable.processes import undisturbed


@contextmanager
def marked_folder(prefix: str, root: Path | None = None) -> Iterator[Path]:
    """Yield a private folder, which goes with all its processes whatever becomes of this process.

    They are those that are started with `reaper.VARIABLE` set to the folder, and all that these start.
    """
    with ExitStack() as at_end:
        with undisturbed():
            made = new_folder(root or Path(tempfile.gettempdir()), prefix, reaper.remove)
            at_end.callback(made.close)
            at_end.callback(_end, _watched(made))
        yield made.path


def _end(watcher: subprocess.Popen[bytes]) -> None:
    assert watcher.stdin is not None
    watcher.stdin.close()
    watcher.wait()


def _watched(made: NewFolder) -> subprocess.Popen[bytes]:
    """Starts the process that removes the folder after this process; it shares the folder's lock."""
    return subprocess.Popen(
        [sys.executable, "-IS", reaper.__file__, str(made.path)],
        stdin=subprocess.PIPE,
        pass_fds=[] if made.lock is None else [made.lock],
        cwd="/",
        start_new_session=True,  # what ends a terminal's or a job's processes leaves it alone
    )
