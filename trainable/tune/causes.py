"""Whose fault it is that a trial's process failed, by the text of its error alone.

The text comes from other processes and from Ray. Nothing of it is unpickled.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

# The trial itself; a disk that takes no more; a lost process or machine; a machine that was taken back
Cause = Literal["crash", "disk", "infrastructure", "preempted"]

# The errors of a disk that is full, of a used-up quota, and of a file system that became read-only
REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
FRAME = re.compile(r'  File ".*", line \d+')
# A process that dies on a living machine is reported within the second that Ray waits for news of it; one
# whose whole machine is gone is `unavailable` (`timeout_ms_task_wait_for_death_info` of Ray)
LOST = re.compile(
    r"^RankLost\b|^The actor \w+ is unavailable\b|\bits node\b|\bnode has died\b|\bowner has died\b"
)
# Of a process whose machine was drained before it died, Ray 2.60 says no more than its id. All others have a
# class or a reason.
TAKEN_BACK = re.compile(r"\bpreempt|\bdrain|\bclass_name: actor_id: \w+$", re.IGNORECASE)


class DiskRefused(RuntimeError):
    """A disk did not take what a trial had to write: making room is a person's work."""


@contextmanager
def refusals_named() -> Iterator[None]:
    """Turn what a full disk raises into DiskRefused, also where another error covers it."""
    try:
        yield
    except DiskRefused:
        raise
    except Exception as error:
        if (refused := refusal_in(error)) is None:
            raise
        raise DiskRefused(f"{in_words(refused)}, on {socket.gethostname()}") from error


def refusal_in(error: BaseException | None) -> OSError | None:
    """Return the error of a disk that takes no more, from an error or what led to it; None without one."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in REFUSALS:
            return error
        error = error.__cause__ or error.__context__
    return None


def in_words(refused: OSError) -> str:
    """Return in words what a disk refused, with the file where it is known."""
    return f"{refused.strerror}" + (f": {refused.filename}" if refused.filename else "")


def cause_of(reason: str) -> Cause:
    """Return whose fault a failure was, from what `last_error` returns.

    A process that died is the trial's own fault, since most die of what the trial does.
    """
    kind = reason.partition(":")[0]
    if kind in (DiskRefused.__name__, "OutOfDiskError"):
        return "disk"
    if not (reason.startswith("The actor") or kind == "RankLost"):
        return "crash"
    if TAKEN_BACK.search(reason):
        return "preempted"
    return "infrastructure" if LOST.search(reason) else "crash"


def last_error(text: str) -> str:
    """Return the error at the end of a traceback in one line; of a text without one, all of it."""
    lines = text.splitlines()
    frames = [number for number, line in enumerate(lines) if FRAME.match(line)]
    rest = lines[frames[-1] + 1 :] if frames else lines
    begin = next((at for at, line in enumerate(rest) if line.strip() and not line.startswith("    ")), 0)
    kind, colon, message = " ".join(" ".join(rest[begin:]).split()).partition(":")
    return f"{kind.rpartition('.')[2] if ' ' not in kind else kind}{colon}{message}"
