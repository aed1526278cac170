"""Writes and checks the lines of a journal.

Each line ends with a checksum over its own text and the checksum of the line before. So a reader finds every
byte that has changed, and every line that was removed, doubled or moved.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainable.errors import UserError

DIGITS = 12  # the number of hexadecimal digits: a damaged line is accepted with a probability of 4e-15
SEALED = re.compile(rb'(\{.+),"sum":"([0-9a-f]{%d})"\}\n' % DIGITS, re.DOTALL)


class JournalError(UserError):
    """The journal is damaged, or another version wrote it: nothing is done with the search."""

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
