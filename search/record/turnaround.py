"""Accounts for the time of a search's slots, from the events of its journal: what it was used for.

A slot is the place of one trial: a driver that trains two trials at once has two. Counted is the time from
the start of a driver's command to its last event, once for each of its slots, over all drivers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

from pydantic import Field

from search.record.clock import duration
from search.record.journal import (
    CostEvent,
    DriverStart,
    EndEvent,
    EpochEvent,
    Event,
    ExtendEvent,
    LeftOutEvent,
    PlaceEvent,
    PromotionEvent,
    RetryEvent,
    SearchEvent,
    SettledEvent,
    StartEvent,
    TrialEvent,
)
from search.record.trials import UnderWay
from spaces.domains import counted
from trainable.recipe.base import Spec

Seconds = Annotated[float, Field(ge=0.0)]
LEAST_SHARE = 0.05  # of the time, that a part is said in a few words
IN_WORDS = {
    "steps": "training steps",
    "data": "waiting for data",
    "scoring": "scoring",
    "checkpoint": "checkpoints",
    "starting": "starting",
    "unfinished": "epochs under way or broken off",
    "idle": "idle",
}


class TimePart(NamedTuple):
    """A part of the slots' time."""

    name: str
    what: str  # in words
    seconds: float
    share: float  # of all slots' time, in [0, 1]


class Turnaround(Spec):
    """What the slots of a search were used for, in seconds of slots: the parts add up to `total_seconds`.

    Time between drivers is not counted, nor what a command does after the end of its search.
    """

    slots: int  # as many trials were trained at once, at most
    gpus: float  # so many a trial reserves, all its workers together
    total_seconds: Seconds
    steps_seconds: Seconds  # steps of training: from the first batch until an epoch's figures are read
    data_seconds: Seconds  # in which such steps waited for their images
    scoring_seconds: Seconds  # of the validation part; and measuring the statistics of norms for it
    checkpoint_seconds: Seconds
    # until a driver's first attempt at a trial begins; then a process, its images, a trial's network and its
    # cost, reading its checkpoint, and by how much its first step took longer than the others
    starting_seconds: Seconds
    unfinished_seconds: Seconds  # epochs without a result: under way, or of attempts that broke off
    idle_seconds: Seconds  # no trial, or one that waited for the driver's answer

    @property
    def parts(self) -> tuple[TimePart, ...]:
        """The parts, always in the same order; that of unfinished epochs only from half a second on."""
        return tuple(
            TimePart(name, what, self.seconds(name), self.share(name))
            for name, what in IN_WORDS.items()
            if name != "unfinished" or self.unfinished_seconds >= 0.5
        )

    def seconds(self, name: str) -> float:
        """Return the seconds of a part by its name, such as `steps`."""
        return float(getattr(self, f"{name}_seconds"))

    def share(self, name: str) -> float:
        """Return a part's share of all, in [0, 1]."""
        return self.seconds(name) / self.total_seconds if self.total_seconds else 0.0

    @property
    def whose(self) -> str:
        """Whose time it is, in words: that of trials at once, each with its GPUs."""
        at_once = f"{counted(self.slots, 'trial')} at once" if self.slots > 1 else "one trial at a time"
        if not self.gpus:
            return at_once
        each = f"{self.gpus:g} GPU{'s' if self.gpus > 1.0 else ''}"
        return f"{at_once}, {each} {'each' if self.slots > 1 else 'for it'}"

    @property
    def note(self) -> str:
        """What must be known where trials share a GPU; empty where none do."""
        if not 0.0 < self.gpus < 1.0:
            return ""
        return "trials share a GPU, so a second of a trial's steps is not a second of the GPU"

    @property
    def whole(self) -> str:
        """Whose time it is, and how much of it, in words."""
        return f"{self.whose}, {duration(self.total_seconds)} {'together' if self.slots > 1 else 'in all'}"

    @property
    def brief(self) -> str:
        """The largest parts in a few words, such as `training steps 64%, starting 20%`."""
        large = sorted(
            (each for each in self.parts if each.share >= LEAST_SHARE), key=lambda each: -each.share
        )
        return ", ".join(f"{each.what} {each.share:.0%}" for each in large)

    @property
    def figures(self) -> str:
        """The parts in words, with their shares."""
        parts = ", ".join(f"{each.what} {each.share:.0%} ({duration(each.seconds)})" for each in self.parts)
        return f"{parts}; {self.note}" if self.note else parts


@dataclass
class _DriverAtWork:
    """Since when a driver is at work, and with what; times are seconds since 1970."""

    start: DriverStart
    began: float
    slots: int  # as many trials as it had at once so far, at least
    freed: float  # when an attempt at a trial ended last
    first: float | None = None  # when its first attempt began


@dataclass(frozen=True)
class _SlotAttempt:
    """An attempt at a trial that is under way."""

    since: float  # it is accounted for up to then
    epochs: int  # how many were done when it began
    has_started: bool = False  # what starting took is accounted for, since epochs were read before


class SlotTime:
    """The account of the slots' time so far; `apply` takes a journal's events in order."""

    def __init__(self) -> None:
        self._is_whole = True  # every driver has written down how it started
        self._total = 0.0
        self._parts: dict[str, float] = defaultdict(float)
        self._slots, self._gpus = 0, 0.0
        self._driver: _DriverAtWork | None = None
        self._under_way = UnderWay[_SlotAttempt]()
        # trials whose process starts, and when a slot was given to them; None for one that waits for a slot:
        # on a cluster one always does
        self._given: dict[int, float | None] = {}
        self._latest = 0.0

    def apply(self, event: Event) -> None:
        """Take in the journal's next event."""
        goes_on = self._under_way.hear(event) is not None
        if isinstance(event, SearchEvent):
            self._apply_search(event)
        elif self._driver is not None:
            self._apply(event, self._driver, goes_on=goes_on)
        self._latest = event.time

    def turnaround(self, until: float) -> Turnaround | None:
        """Return the account, up to `until` (seconds since 1970) where a driver is at work.

        None before a driver has begun, and where an earlier version of tunebook has driven the search: it
        did not write down all of this.
        """
        total, parts = self._closed(until)
        if not self._is_whole or not self._slots or not math.isfinite(total):  # by a damaged journal's times
            return None
        idle = max(0.0, total - sum(parts.values()))
        slots = max(self._slots, self._driver.slots if self._driver is not None else 0)
        seconds = {f"{name}_seconds": parts.get(name, 0.0) for name in IN_WORDS}
        return Turnaround(
            slots=slots, gpus=self._gpus, total_seconds=total, **{**seconds, "idle_seconds": idle}
        )

    def _apply_search(self, event: SearchEvent) -> None:
        match event.state:
            case "started" | "resumed":
                self._close(self._latest)  # a driver that was killed wrote no end
                if event.start is None:
                    self._is_whole = False
                    return
                self._slots, self._gpus = max(self._slots, event.start.slots), event.start.gpus
                self._driver = _DriverAtWork(event.start, event.time, event.start.slots, freed=event.time)
            case "finished" | "interrupted" | "failed":
                self._close(event.time)

    def _apply(self, event: Event, driver: _DriverAtWork, *, goes_on: bool) -> None:
        match event:
            case TrialEvent() if event.repeat is None or event.repeat.purpose != "pruning":
                self._give(event.trial, event.time, driver)  # those of an audit are all proposed at once
            case PromotionEvent() if not goes_on:
                self._give(event.trial, event.time, driver)
            case StartEvent():
                self._start(event, driver)
            case CostEvent() if event.trial in self._under_way:
                self._account(event.trial, event.time, {"starting": float("inf")})
            case EpochEvent() if event.trial in self._under_way:
                self._epoch(event, driver)
            case EndEvent() if event.trial not in self._under_way:
                self._given.pop(event.trial, None)  # its values made no recipe
            case RetryEvent() | EndEvent():
                self._break_off(event.trial, event.time, driver)
            case TrialEvent() | PromotionEvent() | PlaceEvent() | CostEvent() | EpochEvent():
                pass
            case SearchEvent() | SettledEvent() | ExtendEvent() | LeftOutEvent():
                pass

    def _give(self, trial: int, at: float, driver: _DriverAtWork) -> None:
        is_full = len(self._given) + len(self._under_way) >= driver.slots
        self._given[trial] = None if is_full else at

    def _start(self, event: StartEvent, driver: _DriverAtWork) -> None:
        self._break_off(event.trial, event.time, driver)
        since = self._given.pop(event.trial, None)
        if since is None:  # a slot got free, or was added
            since = driver.freed if len(self._under_way) < driver.slots else event.time
        if driver.first is None:
            driver.first = event.time  # what was before is the driver's own start
        self._parts["starting"] += max(0.0, event.time - max(since, driver.first))
        self._under_way[event.trial] = _SlotAttempt(event.time, event.epoch)
        driver.slots = max(driver.slots, len(self._under_way))

    def _epoch(self, event: EpochEvent, driver: _DriverAtWork) -> None:
        attempt = self._under_way[event.trial]
        self._account(event.trial, event.time, _seconds_of(event, attempt))
        if _is_read(event, attempt):
            self._under_way[event.trial] = replace(attempt, since=event.time, has_started=True)
        if event.pauses:
            self._under_way.pause(event.trial)
            driver.freed = event.time

    def _account(self, trial: int, until: float, seconds: Mapping[str, float]) -> None:
        """Account for a trial's time since its last event: for these seconds in their order, as far as they
        fit; the rest was idle."""
        attempt = self._under_way[trial]
        left = max(0.0, until - attempt.since)
        for name, each in seconds.items():
            taken = max(0.0, min(each, left))
            self._parts[name] += taken
            left -= taken
        self._under_way[trial] = replace(attempt, since=until)

    def _break_off(self, trial: int, at: float, driver: _DriverAtWork) -> None:
        if (attempt := self._under_way.pop(trial, None)) is not None:
            self._parts["unfinished"] += max(0.0, at - attempt.since)
            driver.freed = at

    def _close(self, end: float) -> None:
        """Account for the driver at work, which ends."""
        self._total, self._parts = self._closed(end)
        self._slots = max(self._slots, self._driver.slots if self._driver is not None else 0)
        self._driver = None
        self._under_way.clear()
        self._given.clear()

    def _closed(self, end: float) -> tuple[float, dict[str, float]]:
        """Return the seconds in all, and of each part but idle, if the driver at work ended at `end`."""
        parts = defaultdict(float, self._parts)
        if (driver := self._driver) is None:
            return self._total, parts
        first = end if driver.first is None else driver.first
        parts["starting"] += driver.slots * (max(0.0, first - driver.began) + driver.start.seconds)
        parts["unfinished"] += sum(max(0.0, end - each.since) for each in self._under_way.values())
        return self._total + driver.slots * (max(0.0, end - driver.began) + driver.start.seconds), parts


def _is_read(event: EpochEvent, attempt: _SlotAttempt) -> bool:
    """Return whether an attempt has read an epoch from a checkpoint, and not trained it."""
    return event.result.checkpoint_seconds is None and event.epoch <= attempt.epochs


def _seconds_of(event: EpochEvent, attempt: _SlotAttempt) -> dict[str, float]:
    """Return what an attempt's time up to an epoch's result was used for."""
    if _is_read(event, attempt):
        return {"starting": float("inf")}
    result = event.result
    extra, checkpoint = result.first_step_extra_seconds or 0.0, result.checkpoint_seconds or 0.0
    starting = extra + (0.0 if attempt.has_started else result.starting_seconds or 0.0)
    trained = max(result.data_seconds, result.epoch_seconds - result.evaluation_seconds - extra)
    left = event.time - attempt.since - starting - checkpoint - result.evaluation_seconds
    here = min(1.0, max(0.0, left) / trained) if trained else 0.0  # the rest by an attempt that broke off
    return {
        "starting": starting,
        "checkpoint": checkpoint,
        "scoring": result.evaluation_seconds,
        "data": here * result.data_seconds,
        "steps": here * (trained - result.data_seconds),
    }
