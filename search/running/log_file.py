"""Writes the log of a search for people: what happened, and the traceback of every trial that crashed."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from io import TextIOWrapper
from logging.handlers import BufferingHandler
from pathlib import Path

from trainable import stages
from trainable.errors import UserError
from trainable.files.regular import open_to_write, why
from trainable.terminal import visible_lines


class LogFile(logging.FileHandler):
    """A log, written as long as the disk takes it; Python would print a traceback for each lost line."""

    def _open(self) -> TextIOWrapper:
        handle = open_to_write(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return TextIOWrapper(os.fdopen(handle, "ab"), encoding=self.encoding, write_through=True)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's name
        """Do nothing: the search says itself that the disk is full."""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


class LogFormatter(logging.Formatter):
    """A formatter that escapes what a terminal would obey: a log is looked at in one."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_lines(super().format(record))


MOST_KEPT = 1000  # lines; a command has some ten before its search has a folder


@contextlib.contextmanager
def keeping_stages() -> Iterator[None]:
    """Keep what is logged of stages in the block, for the log file of a search that it begins."""
    with _sent(stages.logger, BufferingHandler(MOST_KEPT)):
        yield


@contextlib.contextmanager
def logging_to(file: Path) -> Iterator[None]:
    """Send this package's log, and that of stages, to a file for the block, and nowhere else."""
    try:
        handler = LogFile(file, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file}: cannot be written to: {why(error)}") from None
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(message)s"))
    try:
        for keeper in stages.logger.handlers:
            if isinstance(keeper, BufferingHandler):
                for record in keeper.buffer:
                    handler.handle(record)
                keeper.buffer.clear()
        with _sent(logging.getLogger("search"), handler), _sent(stages.logger, handler):
            yield
    finally:
        handler.close()


@contextlib.contextmanager
def _sent(log: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    """Send a log to a handler for the block, and to no logger above it."""
    level, propagates, log.propagate = log.level, log.propagate, False
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagates
