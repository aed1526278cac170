"""Marks the processes of programs that are not ours, so that none outlives the process that started them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from search.running import reaper
from trainable.files.folders import LockedFolder, locked_folder
from trainable.processes import undisturbed


class MarkedFolder(NamedTuple):
    """A folder that marks processes, and the process that removes both after this one."""

    path: Path
    reaper: subprocess.Popen[bytes]

    def needs(self, processes: Iterable[int]) -> None:
        """Have the reaper say its words if one of these processes ends, and this process with it, without
        having left the block."""
        self._tell(" ".join(map(str, processes)).encode() + b"\n")

    def close(self) -> None:
        """End the marked processes, and remove the folder."""
        assert self.reaper.stdin is not None
        self._tell(reaper.DONE)
        self.reaper.stdin.close()
        self.reaper.wait()

    def _tell(self, words: bytes) -> None:
        assert self.reaper.stdin is not None
        with suppress(BrokenPipeError):  # it was killed
            os.write(self.reaper.stdin.fileno(), words)


@contextmanager
def marked_folder(prefix: str, root: Path | None = None, words: str = "") -> Iterator[MarkedFolder]:
    """Yield a private folder, which goes with all its processes whatever becomes of this process.

    They are those that are started with `reaper.VARIABLE` set to the folder, and all that these start. The
    `words` say why this process ended, where a process did that it `needs`, and how to go on.
    """
    with ExitStack() as at_end:
        with undisturbed():
            made = locked_folder(root or Path(tempfile.gettempdir()), prefix, reaper.remove)
            at_end.callback(made.close)
            found = MarkedFolder(made.path, _reaper_of(made, words))
            at_end.callback(found.close)
        yield found


def _reaper_of(made: LockedFolder, words: str) -> subprocess.Popen[bytes]:
    """Start the process that removes the folder after this process; it shares the folder's lock."""
    return subprocess.Popen(
        [sys.executable, "-IS", reaper.__file__, str(made.path), words],
        stdin=subprocess.PIPE,
        pass_fds=[] if made.lock is None else [made.lock],
        cwd="/",
        start_new_session=True,  # what ends a terminal's or a job's processes leaves it alone
    )
