"""Writes the log of a search for people: what happened, and the traceback of every trial that crashed."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path

from trainable.errors import UserError
from trainable.files.regular import open_to_write, why
from trainable.terminal import visible_lines


class LogFile(logging.FileHandler):
    """Writes a log as long as the disk takes it; Python would print a traceback for each lost line."""

    def _open(self) -> TextIOWrapper:
        handle = open_to_write(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return TextIOWrapper(os.fdopen(handle, "ab"), encoding=self.encoding, write_through=True)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's name
        """Does nothing: the search says itself that the disk is full."""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


class LogFormatter(logging.Formatter):
    """A formatter that escapes what a terminal would obey: a log is looked at in one."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_lines(super().format(record))


@contextlib.contextmanager
def logging_to(file: Path) -> Iterator[None]:
    """Sends this package's log to a file for the block, and nowhere else."""
    try:
        handler = LogFile(file, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file}: cannot be written to: {why(error)}") from None
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(message)s"))
    package = logging.getLogger("search")
    level, package.propagate = package.level, False
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(level)
        package.propagate = True
        handler.close()
