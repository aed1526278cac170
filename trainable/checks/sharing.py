"""Checks whether CUDA's Multi-Process Service (MPS) runs, with which processes use a GPU at the same time."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from trainable.checks.finding import Finding, passed

FOLDER = "CUDA_MPS_PIPE_DIRECTORY"
USUAL_FOLDER = "/tmp/nvidia-mps"
NOBODY_LISTENS = (errno.ENOENT, errno.ENOTDIR, errno.ECONNREFUSED)


def check_sharing() -> Finding:
    """Check whether MPS runs for the processes of this machine that inherit this one's variables."""
    folder = Path(os.environ.get(FOLDER, USUAL_FOLDER))
    if not is_listening(folder / "control"):
        return passed(
            "GPU sharing",
            f"no MPS daemon listens in {folder}: trials that share a GPU take turns there "
            "(docs/cluster.md has how to start one)",
        )
    return Finding(
        "GPU sharing",
        "note",
        f"MPS runs ({folder}): trials that share a GPU compute on it at the same time",
        "a fault on the GPU, such as an illegal memory access, ends every trial on it, not one alone",
        "nothing, unless trials crash: `echo quit | nvidia-cuda-mps-control` ends MPS",
    )


def is_listening(path: Path) -> bool:
    """Return whether a program listens on a Unix socket, which a daemon that was killed leaves behind.

    A stream's socket refuses datagrams before its program hears of them, so nobody is disturbed.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as question:
        try:
            question.connect(str(path))
        except OSError as error:  # EPROTOTYPE is a stream's answer, and EACCES that of another person's
            return error.errno not in NOBODY_LISTENS and path.is_socket()
    return True
