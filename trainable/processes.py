"""Ends processes: this one at a signal, as at Ctrl-C, and those that it started, however it ends.

At SIGTERM and at SIGHUP of a closed terminal the blocks that this process is in are left as at Ctrl-C, so
that each ends the processes and removes the folders that it made. A process that is killed leaves no block;
the processes of ours that it started see that, and end themselves.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import multiprocessing
import os
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

# What ends a process beside Ctrl-C: a machine that is taken back, a terminal that is closed
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
ENDING_SECONDS = 10.0  # for so long a further signal is not heard


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise SystemExit in the block at SIGTERM and SIGHUP, with the code by which shells know the signal.

    A further one soon after does not disturb what ends then; Ctrl-C does. A signal that whoever started this
    process had it ignore, as `nohup` does, stays ignored.
    """
    began = -ENDING_SECONDS

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal began
        if time.monotonic() - began < ENDING_SECONDS:
            return
        began = time.monotonic()
        leave_closed_terminal()
        # Python loses it in a callback, such as __del__: then the next signal counts
        raise SystemExit(128 + number)

    heard = heard_signals(*ENDING_SIGNALS)
    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let no signal leave the block, such as one that starts a process and notes how it is ended: between the
    two the process would be lost. What comes meanwhile counts as soon as the block has ended."""
    came: list[int] = []
    heard = heard_signals(signal.SIGINT, *ENDING_SIGNALS)
    before = {each: signal.signal(each, lambda number, frame: came.append(number)) for each in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


def heard_signals(*numbers: signal.Signals) -> list[signal.Signals]:
    """Return those of the signals that this process was not told to ignore; none outside the main thread,
    where Python handles them."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [each for each in numbers if signal.getsignal(each) != signal.SIG_IGN]


# So long a program that reads what this one prints may take to end, which the same signal has reached
READER_MS = 500


def leave_closed_terminal() -> None:
    """Write to nowhere what is written from now on to a terminal that is closed, or to a program that ended
    with it, such as `tee`: each write would fail."""
    for output in (1, 2):
        if _is_closed(output):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, output)
            os.close(nowhere)


def _is_closed(output: int) -> bool:
    try:
        os.get_terminal_size(output)
        return False
    except OSError as error:  # no terminal, or none any more
        if error.errno == errno.EIO:
            return True
    try:
        if not stat.S_ISFIFO(os.fstat(output).st_mode):
            return False
    except OSError:  # whoever started this process has closed it
        return False
    reader = select.poll()
    reader.register(output, 0)  # its end alone
    return bool(reader.poll(READER_MS))


def ending_at_once(main: Callable[[], None]) -> None:
    """Run a program, and end this process when it exits, as Python does but for freeing its memory.

    Python takes each object apart, and torch and Ray make a million of them: 2 to 4 s of a processor, after
    the last line. The system frees them at once. All else that Python does is done before: threads have
    ended, what is registered with atexit has run, and what was printed is out. multiprocessing ends its
    processes in this way (`BaseProcess._bootstrap` and `Popen._launch` of popen_fork.py).
    """
    try:
        main()
    except SystemExit as ended:
        if isinstance(ended.code, str):  # Python prints it
            raise
        code = ended.code or 0
        with suppress(KeyboardInterrupt):  # it ends already
            threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        ctypes.CDLL(None).fflush(None)  # what C code has printed
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None where it was closed from the start
            try:
                stream.flush()
            except (OSError, ValueError):  # a full disk, or closed since: Python has a code for it
                raise ended from None
        os._exit(code)


def end_with_parent() -> None:
    """End this process, which multiprocessing has started, as soon as the one that it works for has ended."""
    works_for = multiprocessing.parent_process()
    assert works_for is not None

    def watch() -> None:
        works_for.join()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
