"""Stores how many lines of a journal are safe on the disk, so that a journal whose end was cut is noticed.

The number is written only after the journal itself has reached the disk. So it is never too large, whatever
a power failure leaves, and losing the file only means that a cut is not noticed.
"""

from __future__ import annotations

import os
from pathlib import Path

from search.record.home import SYNCED_FILE
from trainable.errors import UserError
from trainable.files.regular import open_to_write, read_regular, why

# the number is overwritten in place, always with as many digits: it is the old one or the new one
DIGITS = 12


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
    return int(text) if len(text) == DIGITS and text.isdigit() else 0


def open_synced(folder: Path) -> int:
    """Return the descriptor of the file, which is made where there is none."""
    return open_to_write(folder / SYNCED_FILE, os.O_RDWR | os.O_CREAT)


def write_synced(file: int, lines: int) -> None:
    """Store the number of lines that are on the disk."""
    os.pwrite(file, b"%0*d" % (DIGITS, lines), 0)
