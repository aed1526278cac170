"""Reads and writes the journal of a search: `events.jsonl`, one event a line, the only truth there is.

Optuna's study, ASHA's rungs, the tables and the tracking are all rebuilt by reading it. So killing the driver
loses nothing but the line being written. Events are only ever appended. Every line is checked when it is read
(`search.record.chain`); what the events say is checked by the fold (`search.record.trials`).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from search.record.chain import (
    START,
    JournalError,
    Position,
    open_synced,
    seal,
    synced_lines,
    unseal,
    whole_lines,
    write_synced,
)
from search.record.clock import steady_clock
from search.record.home import EVENTS_FILE
from search.record.lock import is_locked
from search.study.first import First, FirstTrial
from search.study.objective import NO_CONSTRAINTS, Constraints
from search.study.study import MOST_TRIALS, Finalists, SchedulerKind
from spaces.domains import Value
from trainable.errors import UserError
from trainable.files.regular import check_regular, open_to_write, sync_folder, why
from trainable.recipe import Recipe
from trainable.recipe.base import Spec
from trainable.recipe.metrics import Mode
from trainable.recipe.network_cost import NetworkCost
from trainable.training.metrics import OBJECTIVES, EpochResult
from trainable.tune.place import Place

# the journal's format. Format 1, which tunebook 0.1.0 wrote, had neither checksums nor the settled space
FORMAT = 2
FIRST = b'{"event":"search","sequence":0,'  # the bytes with which every journal begins

SearchState = Literal["started", "resumed", "finished", "interrupted", "failed"]
# how a trial ended: trained to its last epoch, stopped by the scheduler, with a non-finite loss, crashed,
# before it trained, since its network breaks a constraint
TrialEnd = Literal["finished", "stopped", "diverged", "failed", "infeasible"]
# a finalist is trained with other seeds; a trial that was stopped is trained to its end, with its own
RepeatPurpose = Literal["finalist", "pruning"]
SEEDS = 2**32  # the number of seeds: after the last one comes 0


class Repeat(Spec):
    """Which trial is trained again outside the search, why, and with which seeds.

    The sampler and the scheduler learn nothing from it, and it is never stopped early.
    """

    of: Annotated[int, Field(ge=0)]  # the number of the other trial
    purpose: RepeatPurpose
    seed: int | None = None  # the run's `loop.seed`; None leaves the recipe's
    split: int | None = None  # the run's `data.validation_seed`; None leaves the recipe's

    def __str__(self) -> str:
        if self.purpose == "pruning":
            return f"trial {self.of} again, to its end"
        split = "" if self.split is None else f" and split {self.split}"
        return f"trial {self.of} again, with seed {self.seed}{split}"

    def recipe(self, original: Recipe) -> Recipe:
        """Return the recipe of this run."""
        seeds = {"loop.seed": self.seed, "data.validation_seed": self.split}
        return original.with_values({path: seed for path, seed in seeds.items() if seed is not None})


class Stamped(Spec):
    """What every event carries; `Journal.append` writes `sequence` and `time`."""

    event: str
    # it counts 0, 1, 2, ... in the order of the file; it is -1 before the event is appended
    sequence: int = -1
    time: float = 0.0  # it counts seconds since 1970


class DriverStart(Spec):
    """How a driver has started, and the room that it has: for the account of a search's turnaround."""

    seconds: Annotated[float, Field(ge=0.0)]  # from the start of its command to its first event
    slots: Annotated[int, Field(ge=1)]  # so many trials are trained at once, as far as it knows then
    gpus: Annotated[float, Field(ge=0.0)]  # so many a trial reserves, all its workers together


class SearchEvent(Stamped):
    """The search itself began, went on or ended. The first event of a journal says the journal's `format`."""

    event: Literal["search"] = "search"
    format: int = FORMAT
    state: SearchState
    search_id: str
    name: str
    reason: str | None = None
    # the versions of the packages that the driver runs with; it is empty where a driver ends
    versions: dict[str, str] = Field(default_factory=dict)
    # the commit of the folder in which the driver runs, `+changes` where files differ
    git_commit: str | None = None
    # the digest of the file of weights that trials begin from, by the name of the network
    weights: dict[str, str] = Field(default_factory=dict)
    # how the driver has started; None where one ends, and of earlier versions
    start: DriverStart | None = None


class SettledEvent(Stamped):
    """The search decided this before its first trial; readers use it, because rules may change later."""

    event: Literal["settled"] = "settled"
    space: dict[str, Any]  # the whole space, as `spaces.settled.tree_of` returns it
    rungs: tuple[int, ...]  # the epochs after which trials are compared
    factor: Annotated[int, Field(ge=2)]  # one trial in this many goes on from a rung
    scheduler: SchedulerKind  # what happens at rungs
    why: str  # the reason for these rungs and this factor, in words
    objective: str  # the metric by which trials are compared
    # the direction in which it is better, if it is a function of the caller's; the others' is known
    mode: Mode | None = None
    epochs: Annotated[int, Field(ge=1)]  # the number of epochs that the longest trial trains
    constraints: Constraints = NO_CONSTRAINTS  # what the network of a trial may cost at most
    networks_differ: bool = False  # whether the space draws which network a trial has, or how large it is
    # the trials that a person asked for; they come after the documented recipe
    first: tuple[FirstTrial, ...] = ()
    # how the best trials are trained again when all trials have ended; None where they are not
    finalists: Finalists | None = None
    version: str  # the version of tunebook

    @property
    def measures_costs(self) -> bool:
        """Whether each trial's network is measured before it is trained: where a cost is limited, and where
        costs differ."""
        return self.networks_differ or bool(self.constraints.limits)

    @model_validator(mode="after")
    def objective_is_known(self) -> Self:
        if (self.mode is None) != (self.objective in OBJECTIVES):
            known = ", ".join(OBJECTIVES)
            raise ValueError(
                f"objective: expected one of {known} without a mode, or another one with its mode"
            )
        return self


class ExtendEvent(Stamped):
    """A search that may have ended goes on with a larger budget. The study's hours count anew from here."""

    event: Literal["extend"] = "extend"
    # the budget's trials from now on; those that exist count
    trials: Annotated[int, Field(ge=1, le=MOST_TRIALS)]


class TrialEvent(Stamped):
    """A trial exists, with its values by dotted path. The event is on disk before the trial starts.

    `recipe` is the whole recipe as plain data, and `digest` is the recipe's; both are None where the values
    make no recipe. `own` marks the documented recipe, which the scheduler records but never stops, `first` a
    recipe that a person asked for, also where it is trained again. A `repeat` trains the recipe of another
    trial again; its values are that trial's.
    """

    event: Literal["trial"] = "trial"
    trial: Annotated[int, Field(ge=0)]
    values: dict[str, Value]
    own: bool = False
    digest: str | None = None
    recipe: dict[str, Any] | None = None
    first: First | None = None
    repeat: Repeat | None = None


class StartEvent(Stamped):
    """An attempt at a trial began, with `epoch` epochs done: those of its newest checkpoint that opens.

    A fault that shows only when its tensors are read, or in an object store, is found by the attempt itself,
    which then goes on from the checkpoint before.
    """

    event: Literal["start"] = "start"
    trial: Annotated[int, Field(ge=0)]
    attempt: Annotated[int, Field(ge=1)]
    epoch: Annotated[int, Field(ge=0)]


class PlaceEvent(Stamped):
    """Where the ranks of a trial's last attempt are: one place a rank. Earlier versions did not write it."""

    event: Literal["place"] = "place"
    trial: Annotated[int, Field(ge=0)]
    ranks: Annotated[tuple[Place, ...], Field(min_length=1)]


class CostEvent(Stamped):
    """What the network of a trial costs was measured, before the trial's first epoch."""

    event: Literal["cost"] = "cost"
    trial: Annotated[int, Field(ge=0)]
    cost: NetworkCost


class EpochEvent(Stamped):
    """An epoch was trained; epochs count from 1. A trial has each epoch once: its first result counts.

    `rung` is the scheduler's rung that this epoch reached, if it reached one. `pauses` says that the trial
    waits there for an event `promotion`. Where that follows at once, but for ends of other trials, the trial
    never left its process.
    """

    event: Literal["epoch"] = "epoch"
    trial: Annotated[int, Field(ge=0)]
    result: EpochResult
    rung: int | None = None
    pauses: bool = False

    @property
    def epoch(self) -> int:
        return self.result.epoch

    @property
    def diverged(self) -> bool:
        return self.result.diverged


class PromotionEvent(Stamped):
    """A trial that was paused at a rung goes on: it was the best of those that may."""

    event: Literal["promotion"] = "promotion"
    trial: Annotated[int, Field(ge=0)]
    rung: Annotated[int, Field(ge=1)]


class RetryEvent(Stamped):
    """An attempt failed and another one follows."""

    event: Literal["retry"] = "retry"
    trial: Annotated[int, Field(ge=0)]
    reason: str


class LeftOutEvent(Stamped):
    """A machine, or a GPU of one, trains no more trials of this driver."""

    event: Literal["left_out"] = "left_out"
    where: str
    why: str


class EndEvent(Stamped):
    """A trial is over, for good."""

    event: Literal["end"] = "end"
    trial: Annotated[int, Field(ge=0)]
    state: TrialEnd
    reason: str | None = None


# what may happen to a trial once it is there
AfterTrialEvent = StartEvent | PlaceEvent | CostEvent | EpochEvent | PromotionEvent | RetryEvent | EndEvent
Event = SearchEvent | SettledEvent | ExtendEvent | LeftOutEvent | TrialEvent | AfterTrialEvent
SomeEvent = TypeVar("SomeEvent", bound=Stamped)
logger = logging.getLogger(__name__)
_ADAPTER: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


class Journal:
    """A journal that is written: it opens or creates `folder/events.jsonl`, with the folder's lock held by
    the caller.

    `events` holds what was there on opening. A last line that a kill left torn is cut off, with a warning.
    Raises JournalError where the file is damaged, UserError where it cannot be written to.
    """

    def __init__(self, folder: str | Path, clock: Callable[[], float] | None = None) -> None:
        self.path = Path(folder) / EVENTS_FILE
        self._file, self._synced = _opened(self.path)
        try:
            events, self._end, torn = _read(self.path, START)
        except UserError:
            self.close()
            raise
        if torn:
            _warn_of_torn_line(self.path, self._end)
        os.ftruncate(self._file, self._end.offset)
        os.fsync(self._file)
        sync_folder(Path(folder))
        self.events: tuple[Event, ...] = tuple(events)
        self._clock = clock or steady_clock(events[-1].time if events else 0.0)

    def append(self, event: SomeEvent) -> SomeEvent:
        """Write one event and return it as written, with its sequence number and time.

        A killed driver loses no event that was returned. A power failure loses at most events `start`,
        `place`, `cost`, `epoch` and `retry`, which are not worth a wait for the disk: their trial is trained
        again.
        """
        stamped = event.model_copy(update={"sequence": self._end.lines, "time": self._clock()})
        line, checksum = seal(stamped.model_dump_json().encode(), self._end.checksum)
        self._write(line)
        self._end = self._end.after(line, checksum)
        if not isinstance(event, StartEvent | PlaceEvent | CostEvent | EpochEvent | RetryEvent):
            os.fsync(self._file)
            write_synced(self._synced, self._end.lines)
        return stamped

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            os.ftruncate(self._file, self._end.offset)  # half a line in the middle would spoil the file
            raise

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        if self._file >= 0:
            os.close(self._file)
            os.close(self._synced)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _opened(path: Path) -> tuple[int, int]:
    """Return the descriptors of a journal and of the file that says how much of it is safe."""
    try:
        journal = open_to_write(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            return journal, open_synced(path.parent)
        except OSError:
            os.close(journal)
            raise
    except OSError as error:
        raise UserError(f"{error.filename or path}: cannot be written to: {why(error)}") from None


def check_format(path: Path) -> None:
    """Raise JournalError for a journal that another version of tunebook wrote, as its first line says."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            _check_format(file.readline(), path)
    except OSError:
        return  # whoever reads the journal reports it


def read(path: str | Path) -> list[Event]:
    """Return every event of a journal's file, without a torn last line.

    A torn line is left out with a warning where no driver writes. Raises UserError where there is no file,
    JournalError where it is damaged.
    """
    path = Path(path)
    was_locked = is_locked(path.parent)
    events, end, torn = _read(path, START)
    if torn and not was_locked and not is_locked(path.parent):
        _warn_of_torn_line(path, end)
    return events


def read_from(path: str | Path, position: Position, until: int | None = None) -> tuple[list[Event], Position]:
    """Return the events behind a position, and the new position, before a half-written last line.

    Where `until` is given, the lines in so many first bytes of the file are read.
    """
    events, end, _ = _read(Path(path), position, until)
    return events, end


def _read(path: Path, position: Position, until: int | None = None) -> tuple[list[Event], Position, bool]:
    lines = synced_lines(path.parent)  # read first, since a driver may be writing
    try:
        check_regular(path)
        with path.open("rb") as file:
            file.seek(position.offset)
            content = file.read(-1 if until is None else max(0, until - position.offset))
            events, end, torn = _parse(path, content, position)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a search writes it when it starts") from None
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {why(error)}") from None
    if until is None and end.lines < lines:
        raise JournalError(
            f"{_where(path, end)}: expected at least {lines} lines, got {end.lines}; the file was cut"
        )
    return events, end, torn


def _parse(path: Path, content: bytes, position: Position) -> tuple[list[Event], Position, bool]:
    """Return the events in whole lines, the position behind them, and whether a torn line follows."""
    events: list[Event] = []
    begin = position.offset
    for line in whole_lines(content):
        where = _where(path, position)
        if not position.lines:
            _check_format(line, path)
        body, checksum = unseal(line, position, where)
        events.append(_event(body, position.lines, where))
        position = position.after(line, checksum)
    rest = content[position.offset - begin :]
    if not position.lines and not FIRST.startswith(rest[: len(FIRST)]):
        raise JournalError(f"{path}: line 1: expected the first event of a search")
    return events, position, bool(rest)


def _check_format(line: bytes, path: Path) -> None:
    """Raise JournalError for a first line that another version of tunebook wrote."""
    try:
        tree = json.loads(line)
    except (ValueError, RecursionError):
        return  # the checksum will show the damage
    if not isinstance(tree, dict) or tree.get("event") != "search" or tree.get("format") == FORMAT:
        return
    if "format" not in tree and "sum" not in tree:
        raise JournalError(
            f"{path}: this search was made by tunebook 0.1.0; open it with that version, or start a new one"
        )
    raise JournalError(
        f"{path}: line 1: expected a journal of format {FORMAT}, got format {tree.get('format')}"
    )


def _event(body: bytes, sequence: int, where: str) -> Event:
    try:
        event = _ADAPTER.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"][1:])) or "line"
        raise JournalError(f"{where}: expected an event of a search: {field}: {first['msg']}") from None
    if event.sequence != sequence:
        raise JournalError(f"{where}: expected event {sequence}, got {event.sequence}")
    return event


def _where(path: Path, position: Position) -> str:
    return f"{path}: line {position.lines + 1}"


def _warn_of_torn_line(path: Path, end: Position) -> None:
    logger.warning(
        "%s: the last line was torn, as by a kill or a full disk; it is left out", _where(path, end)
    )
