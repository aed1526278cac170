"""The journal of a search: `events.jsonl`, one event a line, the only truth there is.

Optuna's study, ASHA's rungs, the tables and the tracking are all rebuilt by reading it, so that killing the
driver loses nothing but the line being written. Events are only ever appended.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from search.record.home import EVENTS_FILE
from spaces.domains import Value
from trainable.errors import UserError
from trainable.recipe.base import Spec

SearchState = Literal["started", "resumed", "finished", "interrupted", "failed"]
Outcome = Literal["finished", "stopped", "diverged", "failed"]
"""How a trial ended: trained to its last epoch, stopped by the scheduler, a loss not finite, crashed."""


class Stamped(Spec):
    """What every event carries; `sequence` and `time` are written by `Journal.append`."""

    event: str
    sequence: int = -1
    """0, 1, 2, ... in the order of the file; -1 before the event is appended."""
    time: float = 0.0
    """Seconds since 1970."""


class SearchEvent(Stamped):
    """The search itself began, went on or ended."""

    event: Literal["search"] = "search"
    state: SearchState
    search_id: str
    name: str
    reason: str | None = None


class TrialEvent(Stamped):
    """A trial exists, with its values by dotted path; on disk before the trial starts.

    `own` marks the documents' own recipe, which the scheduler records but never stops.
    """

    event: Literal["trial"] = "trial"
    trial: Annotated[int, Field(ge=0)]
    values: dict[str, Value]
    own: bool = False


class StartEvent(Stamped):
    """An attempt at a trial began, with `epoch` epochs already done (those its checkpoint covers)."""

    event: Literal["start"] = "start"
    trial: Annotated[int, Field(ge=0)]
    attempt: Annotated[int, Field(ge=1)]
    epoch: Annotated[int, Field(ge=0)]


class EpochEvent(Stamped):
    """An epoch was trained; epochs count from 1. A trial has each epoch once: its first result counts.

    `rung` is the scheduler's rung that this epoch reached, if it reached one.
    """

    event: Literal["epoch"] = "epoch"
    trial: Annotated[int, Field(ge=0)]
    epoch: Annotated[int, Field(ge=1)]
    metrics: dict[str, float]
    diverged: bool = False
    rung: int | None = None


class RetryEvent(Stamped):
    """An attempt failed and another one follows."""

    event: Literal["retry"] = "retry"
    trial: Annotated[int, Field(ge=0)]
    reason: str


class EndEvent(Stamped):
    """A trial is over, for good."""

    event: Literal["end"] = "end"
    trial: Annotated[int, Field(ge=0)]
    state: Outcome
    reason: str | None = None


Event = SearchEvent | TrialEvent | StartEvent | EpochEvent | RetryEvent | EndEvent
SomeEvent = TypeVar("SomeEvent", bound=Stamped)
_ADAPTER: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


class Journal:
    """The writing side: opens or creates `folder/events.jsonl`; only who has the folder's lock may do so.

    `events` holds what was there on opening. A last line that a kill left torn is cut off. Raises UserError
    where a line is not an event.
    """

    def __init__(self, folder: str | Path, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(folder) / EVENTS_FILE
        self._clock = clock
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            events, self._size = _parse(self.path, self.path.read_bytes(), 0)
        except UserError:
            self.close()
            raise
        os.ftruncate(self._file, self._size)
        os.fsync(self._file)
        _sync_folder(Path(folder))
        self.events: tuple[Event, ...] = tuple(events)
        self._sequence = len(self.events)

    def append(self, event: SomeEvent) -> SomeEvent:
        """Write one event and return it as written, with its sequence number and time.

        A killed driver loses no event that was returned; a power failure none but `start`, `epoch` and
        `retry`, which are not worth a wait for the disk: their trial is trained again.
        """
        stamped = event.model_copy(update={"sequence": self._sequence, "time": self._clock()})
        self._write(stamped.model_dump_json().encode() + b"\n")
        self._sequence += 1
        if isinstance(event, SearchEvent | TrialEvent | EndEvent):
            os.fsync(self._file)
        return stamped

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            os.ftruncate(self._file, self._size)  # half a line in the middle would spoil the whole file
            raise
        self._size += len(line)

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(path: str | Path) -> list[Event]:
    """Every event of a journal's file. Raises UserError where there is none or a line is broken."""
    return read_from(path, 0)[0]


def read_from(path: str | Path, offset: int) -> tuple[list[Event], int]:
    """The events from a byte offset on, and the offset to go on from; half-written last lines wait."""
    try:
        with Path(path).open("rb") as file:
            file.seek(offset)
            events, length = _parse(Path(path), file.read(), offset)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a search writes it when it starts") from None
    return events, offset + length


def _parse(path: Path, content: bytes, offset: int) -> tuple[list[Event], int]:
    """The events in whole lines, and the length of those lines in bytes."""
    events: list[Event] = []
    done = 0
    for line, last in _lines(content):
        try:
            event = _ADAPTER.validate_json(line)
        except ValidationError as error:
            if last and not _is_json(line):
                break
            raise UserError(
                f"{_place(path, offset + done)}: not an event of a search: {_first(error)}"
            ) from None
        expected = events[-1].sequence + 1 if events else (0 if offset == 0 else event.sequence)
        if event.sequence != expected:
            raise UserError(f"{_place(path, offset + done)}: expected event {expected}, got {event.sequence}")
        events.append(event)
        done += len(line)
    return events, done


def _lines(content: bytes) -> Iterator[tuple[bytes, bool]]:
    """Whole lines, each with whether it is the last; what follows the last newline is not one yet."""
    lines = content.split(b"\n")[:-1]
    for number, line in enumerate(lines):
        yield line + b"\n", number + 1 == len(lines)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _place(path: Path, position: int) -> str:
    before = path.read_bytes()[:position].count(b"\n")
    return f"{path}: line {before + 1}"


def _first(error: ValidationError) -> str:
    item = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, item['loc'][1:])) or 'line'}: {item['msg']}"


def _sync_folder(folder: Path) -> None:
    """Make a new file's name itself survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
