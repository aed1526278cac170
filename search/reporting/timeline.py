"""What happened when: a journal's times as seconds under a driver, the attempts at trials, each in a lane,
and how the best score rose with the work that was done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from search.record.journal import (
    EndEvent,
    EpochEvent,
    Event,
    ExtendEvent,
    PlaceEvent,
    RetryEvent,
    SearchEvent,
    StartEvent,
    TrialEvent,
)
from search.record.trials import UnderWay
from search.reporting.content import AttemptRow, BestSoFar, LaterDriver, Progress
from trainable.tune.place import in_words

STALL_SECONDS = 30.0
# a stall is a wait of so many seconds, and of so many times the search's median epoch, beyond the time that
# the epoch itself took; our choice
STALL_FACTOR = 3.0
PREEMPTED = re.compile(r"preempt|taken back|drain", re.IGNORECASE)
SECONDS_PER_HOUR = 3600.0


@dataclass
class DriverClock:
    """The seconds under a driver, while events are read in order; what passes between drivers is not
    counted."""

    began: float | None = None  # when the driver at work began; None between drivers
    before: float = 0.0  # the seconds under earlier drivers
    latest: float = 0.0

    def read(self, event: Event) -> float:
        """Return the seconds under a driver at an event."""
        if isinstance(event, SearchEvent):
            if event.state in ("started", "resumed"):
                self._close(self.latest)
                self.began = event.time
            else:
                self._close(event.time)
        self.latest = event.time
        return self.at(event.time)

    def at(self, time: float) -> float:
        """Return the seconds under a driver at a time."""
        return self.before + (max(0.0, time - self.began) if self.began is not None else 0.0)

    def _close(self, end: float) -> None:
        self.before, self.began = self.at(end), None


@dataclass
class _Open:
    """An attempt that has not ended, the seconds of its start and epochs, and those each epoch took."""

    trial: int
    number: int
    first_epoch: int
    start: float
    place: str = ""
    marks: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)

    def closed(self, end: float, outcome: str, reason: str | None) -> tuple[AttemptRow, _Open]:
        """Return the attempt, not yet in a lane, beside this."""
        attempt = AttemptRow.model_validate(
            {
                "trial": self.trial,
                "number": self.number,
                "lane": 0,
                "start": self.start,
                "end": max(end, self.start),
                "first_epoch": self.first_epoch,
                "outcome": outcome,
                "reason": reason,
                "place": self.place,
            }
        )
        return attempt, self


@dataclass(frozen=True)
class Timeline:
    """The attempts of a search in the order of their starts, and its later drivers."""

    attempts: tuple[AttemptRow, ...]
    later_drivers: tuple[LaterDriver, ...]
    seconds: float  # under a driver, until the last event or `now`


def timeline(events: Sequence[Event], now: float | None) -> Timeline:
    """Return when which trial was trained; `now` is the time if a driver is at work, else None."""
    clock = DriverClock()
    opened = UnderWay[_Open]()
    closed: list[tuple[AttemptRow, _Open]] = []
    for event in events:
        seconds = clock.read(event)
        if opened.hear(event) is not None:
            closed.pop()
        match event:
            case SearchEvent():
                closed += [each.closed(seconds, "cut", event.reason) for each in opened.values()]
                opened.clear()
            case StartEvent():
                opened[event.trial] = _Open(event.trial, event.attempt, event.epoch, seconds)
            case PlaceEvent() if event.trial in opened:
                opened[event.trial].place = in_words(event.ranks)
            case EpochEvent() if event.trial in opened:
                opened[event.trial].marks.append(seconds)
                opened[event.trial].took.append(event.result.epoch_seconds)
                if event.pauses:
                    closed.append(opened.pause(event.trial).closed(seconds, "paused", None))
            case RetryEvent() if (attempt := opened.pop(event.trial, None)) is not None:
                outcome = "preempted" if PREEMPTED.search(event.reason) else "retried"
                closed.append(attempt.closed(seconds, outcome, event.reason))
            case EndEvent() if (attempt := opened.pop(event.trial, None)) is not None:
                closed.append(attempt.closed(seconds, event.state, event.reason))
            case _:
                pass
    end = clock.at(now if now is not None else clock.latest)
    closed += [each.closed(end, "cut" if now is None else "running", None) for each in opened.values()]
    return Timeline(_in_lanes(_with_stalls(closed)), tuple(_later_drivers(events)), end)


def _later_drivers(events: Sequence[Event]) -> Iterator[LaterDriver]:
    """Yield the drivers after the first one; one whose first run is that of an audit was begun for it."""
    clock = DriverClock()
    audits = {
        each.trial
        for each in events
        if isinstance(each, TrialEvent) and each.repeat is not None and each.repeat.purpose == "pruning"
    }
    for at, event in enumerate(events):
        seconds = clock.read(event)
        if isinstance(event, SearchEvent) and event.state == "resumed":
            deeds = (each for each in events[at:] if isinstance(each, StartEvent | ExtendEvent))
            yield LaterDriver(at=seconds, what=_purpose(next(deeds, None), audits))


def _purpose(
    first: StartEvent | ExtendEvent | None, audits: Set[int]
) -> Literal["resumed", "audit", "extended"]:
    """Return what a later driver was begun for, by the first that it did."""
    match first:
        case ExtendEvent():
            return "extended"
        case StartEvent() if first.trial in audits:
            return "audit"
        case _:
            return "resumed"


def _with_stalls(closed: Sequence[tuple[AttemptRow, _Open]]) -> list[AttemptRow]:
    """Return the attempts with the times in which they waited much longer than an epoch takes."""
    took = [seconds for _, each in closed for seconds in each.took]
    least = max(STALL_SECONDS, STALL_FACTOR * median(took)) if took else STALL_SECONDS
    return [
        attempt.model_copy(update={"stalls": tuple(_stalls(attempt, each, least))})
        for attempt, each in closed
    ]


def _stalls(attempt: AttemptRow, each: _Open, least: float) -> Iterable[tuple[float, float]]:
    """Yield the waits of at least so many seconds; the start of an attempt and its end count as marks."""
    begins, ends = [attempt.start, *each.marks], [*each.marks, attempt.end]
    for begin, end, took in zip(begins, ends, [*each.took, 0.0], strict=True):
        if end - begin - took >= least:
            yield begin, end - took


def _in_lanes(attempts: Sequence[AttemptRow]) -> tuple[AttemptRow, ...]:
    """Return the attempts by start, each in the first lane that is free."""
    free: list[float] = []
    placed = []
    for each in sorted(attempts, key=lambda each: (each.start, each.trial)):
        lane = next((number for number, end in enumerate(free) if end <= each.start), len(free))
        free[lane : lane + 1] = [each.end]
        placed.append(each.model_copy(update={"lane": lane}))
    return tuple(placed)


def progress_of(events: Iterable[Event], metric: str, sign: float) -> Progress:
    """Return each finished trial that was better than all before it, by the epochs that all trials had
    trained then, the hours under a driver and the trials that had ended.

    `sign` is -1 where lower is better. Runs that train a trial again are not part of this: they come after
    the search's own trials, and hours are not counted from the first of them until the search is extended.
    """
    clock, last, repeats = DriverClock(), dict[int, float](), set[int]()
    steps: list[BestSoFar] = []
    epochs = trials = 0
    hours = aside = 0.0
    since: float | None = None
    for event in events:
        seconds = clock.read(event)
        if isinstance(event, TrialEvent) and event.repeat is not None:
            repeats.add(event.trial)
            since = seconds if since is None else since
        if getattr(event, "trial", None) in repeats:
            continue
        if since is None:
            hours = (seconds - aside) / SECONDS_PER_HOUR
        match event:
            case ExtendEvent() if since is not None:
                aside, since = aside + seconds - since, None
            case EpochEvent():
                epochs += 1
                last[event.trial] = event.result.metrics().get(metric, 0.0)
            case EndEvent(trial=trial, state=state):
                trials += 1
                if state == "finished" and (not steps or sign * last[trial] > sign * steps[-1].score):
                    steps.append(
                        BestSoFar(trial=trial, score=last[trial], epochs=epochs, hours=hours, trials=trials)
                    )
            case _:
                pass
    return Progress(steps=tuple(steps), epochs=epochs, hours=hours, trials=trials)
