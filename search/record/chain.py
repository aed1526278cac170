"""Writes and checks the lines of a journal, and stores how many of them are safe on the disk.

Each line ends with a checksum over its own text and the checksum of the line before. So a reader finds every
byte that has changed, and every line that was removed, doubled or moved. That lines are missing at the end is
noticed by their number, in a file of its own. It is written only after the journal itself has reached the
disk. So it is never too large, whatever a power failure leaves, and losing the file only means that a cut is
not noticed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from search.record.home import SYNCED_FILE
from trainable.errors import UserError
from trainable.files.regular import open_to_write, read_regular, why

DIGITS = 12  # the number of hexadecimal digits: a damaged line is accepted with a probability of 4e-15
SEALED = re.compile(rb'(\{.+),"sum":"([0-9a-f]{%d})"\}\n' % DIGITS, re.DOTALL)
# the number is overwritten in place, always with as many digits: it is the old one or the new one
COUNT_DIGITS = 12


class JournalError(UserError):
    """The journal is damaged, or another version wrote it: nothing is done with the search."""

    section = "a-journal"
    exit_code = 1


@dataclass(frozen=True)
class Position:
    """How far a journal has been read: where to go on, and the checksum that the next line builds on."""

    offset: int = 0  # it counts bytes
    lines: int = 0
    checksum: str = ""

    def after(self, line: bytes, checksum: str) -> Position:
        """Return the position behind one more line."""
        return Position(self.offset + len(line), self.lines + 1, checksum)


START = Position()


def seal(body: bytes, before: str) -> tuple[bytes, str]:
    """Return the line of a JSON object, with its checksum as the last key; and that checksum."""
    checksum = checksum_of(body, before)
    return b'%s,"sum":"%s"}\n' % (body[:-1], checksum.encode()), checksum


def checksum_of(body: bytes, before: str) -> str:
    """Return the checksum of a line's JSON object, which builds on `before`, that of the line before."""
    return hashlib.sha256(before.encode() + body).hexdigest()[:DIGITS]


def unseal(line: bytes, position: Position, where: str) -> tuple[bytes, str]:
    """Return the JSON object in a line, and its checksum. Raises JournalError naming what was expected."""
    match = SEALED.fullmatch(line)
    if match is None:
        raise JournalError(f"{where}: expected a line that ends with its checksum; the line is damaged")
    body, got = match[1] + b"}", match[2].decode()
    if got != (expected := checksum_of(body, position.checksum)):
        raise JournalError(
            f"{where}: expected the checksum {expected}, got {got}; the line is damaged, "
            "or a line before it is missing, doubled or moved"
        )
    return body, got


def whole_lines(content: bytes) -> Iterator[bytes]:
    """Yield the lines that end with a newline."""
    for line in content.split(b"\n")[:-1]:
        yield line + b"\n"


def synced_lines(folder: Path) -> int:
    """Return how many lines the journal in a folder has at least; 0 where nothing says so.

    Raises UserError where the file is there and cannot be read.
    """
    file = folder / SYNCED_FILE
    try:
        text = read_regular(file, most=1024)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {why(error)}") from None
    return int(text) if len(text) == COUNT_DIGITS and text.isdigit() else 0


def open_synced(folder: Path) -> int:
    """Return the descriptor of the file, which is made where there is none."""
    return open_to_write(folder / SYNCED_FILE, os.O_RDWR | os.O_CREAT)


def write_synced(file: int, lines: int) -> None:
    """Store the number of lines that are on the disk."""
    os.pwrite(file, b"%0*d" % (COUNT_DIGITS, lines), 0)
