"""Tests that a damaged journal gives the same search or an error, never a smaller search in silence.

Lines that were not yet safe on the disk when the driver was killed are the exception (0013, limits).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from search.record.chain import JournalError, open_synced, write_synced
from search.record.folder import read_record
from search.record.home import EVENTS_FILE, SYNCED_FILE
from search.record.journal import Event, TrialEvent, read
from search.record.record import Record
from tests.search.planted_searches import Run, planted

MUTATIONS = 3_000
Damage = Callable[[bytes, random.Random], bytes]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a search with trials of several outcomes."""
    return planted(
        tmp_path_factory.mktemp("searches"),
        lambda at, luck: Run(luck.uniform(0.5, 0.9), 0.9, diverges=luck.random() < 0.2),
        trials=5,
        budget__epochs=4,
    )


def flip(content: bytes, luck: random.Random) -> bytes:
    at = luck.randrange(len(content))
    return content[:at] + bytes([content[at] ^ luck.randrange(1, 256)]) + content[at + 1 :]


def on_lines(change: Callable[[list[bytes], random.Random], None]) -> Damage:
    def damage(content: bytes, luck: random.Random) -> bytes:
        lines = content.splitlines(keepends=True)
        change(lines, luck)
        return b"".join(lines)

    return damage


def remove(lines: list[bytes], luck: random.Random) -> None:
    del lines[luck.randrange(len(lines))]


def double(lines: list[bytes], luck: random.Random) -> None:
    at = luck.randrange(len(lines))
    lines.insert(luck.randrange(len(lines) + 1), lines[at])


def swap(lines: list[bytes], luck: random.Random) -> None:
    one, other = luck.sample(range(len(lines)), 2)
    lines[one], lines[other] = lines[other], lines[one]


def cut(content: bytes, luck: random.Random) -> bytes:
    return content[: luck.randrange(len(content))]


DAMAGES: dict[str, Damage] = {
    "flip": flip,
    "remove": on_lines(remove),
    "double": on_lines(double),
    "swap": on_lines(swap),
    "cut": cut,
}


@pytest.mark.slow("reads after each cut")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_journal_is_an_error_that_names_file_and_line(
    finished: Path, damage: str, tmp_path: Path
) -> None:
    journal = (finished / EVENTS_FILE).read_bytes()
    (tmp_path / SYNCED_FILE).write_bytes((finished / SYNCED_FILE).read_bytes())
    whole = read_from_bytes(tmp_path, journal)
    for number in range(MUTATIONS // len(DAMAGES)):
        content = DAMAGES[damage](journal, random.Random(f"{damage} {number}"))
        (tmp_path / EVENTS_FILE).write_bytes(content)
        found, error = attempted(tmp_path)
        if content == journal:
            assert found == whole
            continue
        assert found is None, number
        assert f"{EVENTS_FILE}: line " in error
        assert "\n" not in error


@pytest.mark.slow("reads after each cut")
def test_what_a_power_failure_cuts_off_is_left_out_and_a_torn_line_is_reported(
    finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Epochs after the last line that was synced may be lost: their trial is trained again."""
    journal = (finished / EVENTS_FILE).read_bytes()
    whole = read_from_bytes(tmp_path, journal)
    last = max(event.sequence for event in whole if isinstance(event, TrialEvent))
    lines = journal.splitlines(keepends=True)
    file = open_synced(tmp_path)
    write_synced(file, last + 1)
    os.close(file)
    for length in range(len(b"".join(lines[: last + 1])), len(journal)):
        caplog.clear()
        found = read_from_bytes(tmp_path, journal[:length])
        assert found == whole[: len(found)]
        assert ("the last line was torn" in caplog.text) == (not journal[:length].endswith(b"\n"))


def test_random_bytes_are_an_error(tmp_path: Path) -> None:
    for number in range(200):
        luck = random.Random(number)
        (tmp_path / EVENTS_FILE).write_bytes(luck.randbytes(luck.randrange(2, 2000)))
        with pytest.raises(JournalError, match="line 1: expected"):
            read_record(tmp_path)


def attempted(folder: Path) -> tuple[list[Event] | None, str]:
    """Return what a reader gets of a journal: its events, or an error's message."""
    try:
        found = read(folder / EVENTS_FILE)
        Record(found)
    except JournalError as error:
        return None, str(error)
    return found, ""


def read_from_bytes(folder: Path, content: bytes) -> list[Event]:
    (folder / EVENTS_FILE).write_bytes(content)
    return read(folder / EVENTS_FILE)
