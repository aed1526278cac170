"""A journal, delivered to others in the background, without delaying the search.

The journal is the queue. Events that could not be delivered are read again by the next process, so a delivery
must be safe to repeat.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from search.followers.uri import without_password
from search.record.chain import START, JournalError
from search.record.home import EVENTS_FILE
from search.record.journal import Event, read_from
from trainable.errors import UserError

POLL_SECONDS = 1.0  # events of one second are delivered together: this needs fewer requests
LONGEST_PAUSE_SECONDS = 30.0
LAST_ATTEMPTS = 2  # the last delivery is tried at most so many times: nobody waits for a server that is down
MESSAGE_LENGTH = 300


@dataclass(frozen=True)
class Backlog:
    """What a receiver lacks: events not delivered yet, and single items that it refused for good."""

    receiver: str
    events: int
    error: str | None = None  # why the last delivery failed, in one line; None if it did not
    refused: int = 0
    refusal: str | None = None  # the last item refused and why, in one line

    @property
    def complete(self) -> bool:
        """Whether nothing is left to deliver; items that were refused for good do not count."""
        return not self.events and self.error is None

    def __str__(self) -> str:
        count = "1 event" if self.events == 1 else f"{self.events} events"
        lacks = f" lacks {count}" if self.events else "" if self.error else " has every event"
        line = f"{self.receiver}{lacks}" + (f": {self.error}" if self.error else "")
        return f"{line}; {self.refused} refused for good, the last: {self.refusal}" if self.refused else line


class Consumer(ABC):
    """What follows the journal of a search folder and delivers its events to a receiver.

    `start` does so in a background thread until `close`; `sync` does so at once, in the caller's. Neither
    raises: what went wrong is in the Backlog.
    """

    receiver: str
    # whether a delivery is as long after another one as that took: a slow receiver gets more together
    is_paced: bool = False

    def __init__(self, folder: Path) -> None:
        self._journal = folder / EVENTS_FILE
        self._position = START
        self._events_read = 0
        self._undelivered = 0
        self._error: str | None = None
        self._damage: JournalError | None = None
        self._busy = threading.Lock()
        self._closing = False
        self._delivers_rest = True
        self._may_deliver: Callable[[], bool] = lambda: True
        self._until: Callable[[], int | None] = lambda: None
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def start(
        self, may: Callable[[], bool] = lambda: True, until: Callable[[], int | None] = lambda: None
    ) -> None:
        """Follow the journal from now on, as long as `may` returns true; the journal need not exist yet.

        Before `close`, no more of it is delivered than so many first bytes as `until` says.
        """
        self._may_deliver, self._until = may, until
        self._thread = threading.Thread(target=self._follow, name=f"to {self.receiver}", daemon=True)
        self._thread.start()

    def catch_up(self, deadline_seconds: float, enough: Callable[[], bool] | None = None) -> Backlog:
        """Wait until the background thread has delivered what the journal holds now, or has failed to.

        With `enough`, wait only until that returns true. The thread begins at once.
        """
        deadline = time.monotonic() + deadline_seconds
        size = self._journal.stat().st_size if self._journal.exists() else 0
        enough = enough or (lambda: self._position.offset >= size and not self._undelivered)
        while time.monotonic() < deadline and self._error is None and not enough():
            self._wake.set()
            time.sleep(0.02)
        return self.backlog()

    def close(self, deadline_seconds: float, *, rest: bool = True) -> Backlog:
        """Deliver the rest and stop; a slow receiver gets until the deadline, a dead one less."""
        self._closing, self._delivers_rest = True, rest
        self._wake.set()
        if self._thread is not None:
            self._thread.join(deadline_seconds)
        return self.backlog()

    def sync(self) -> Backlog:
        """Deliver everything there is, now."""
        self._drain()
        return self.backlog()

    def backlog(self) -> Backlog:
        """Return what is known to be undelivered, without asking anybody."""
        return Backlog(self.receiver, self._undelivered, self.problem)

    @property
    def problem(self) -> str | None:
        """Why the last delivery failed, or that it runs after its time, in one line; None for neither."""
        busy = self._closing and self._thread is not None and self._thread.is_alive()
        return self._error or ("has not answered in time" if busy else None)

    @abstractmethod
    def _open(self) -> None:
        """Open what deliveries need, where that is not open yet; called before each delivery."""

    @abstractmethod
    def _read_events(self, events: Sequence[Event]) -> int:
        """Read the journal's next events; return how many of them are to be delivered."""

    @abstractmethod
    def _deliver(self) -> None:
        """Send what was read and is not delivered; raise whatever goes wrong. The next call continues."""

    @abstractmethod
    def _release(self) -> None:
        """Close what `_open` opened."""

    @abstractmethod
    def _report_failure(self, error: str) -> None:
        """Report that a delivery has failed; the Backlog says so too, and another delivery follows."""

    def _follow(self) -> None:
        failures, took = 0, 0.0
        while True:
            # a second, doubled by each failure in a row, or longer if the last delivery took longer: ten
            # results of a trial are one request to MLflow, as one result is
            pause = max(took, POLL_SECONDS * 2.0 ** min(failures, 16))
            self._wake.wait(min(pause, LONGEST_PAUSE_SECONDS))
            self._wake.clear()
            if self._closing:
                break
            began = time.monotonic()
            failures = 0 if self._attempt() else failures + 1
            took = time.monotonic() - began if self.is_paced else 0.0
        self._drain()

    def _drain(self) -> None:
        for attempt in range(LAST_ATTEMPTS if self._delivers_rest else 0):
            if attempt:
                time.sleep(POLL_SECONDS)
            if self._attempt():
                break
        with self._busy:
            self._release()

    def _attempt(self) -> bool:
        """Read what is new and deliver it, once; return whether that worked."""
        with self._busy:
            try:
                if not self._may_deliver():
                    raise UserError("another driver may be at work")
                self._open()
                self._read()
                self._deliver()
            except Exception as error:  # a receiver may fail in any way; the search goes on
                self._error = error_line(error)
                self._report_failure(self._error)
                return False
            self._undelivered = 0
            self._error = None
            return True

    def _read(self) -> None:
        if self._damage is not None:
            raise self._damage
        if self._journal.exists():
            try:
                until = None if self._closing else self._until()
                events, position = read_from(self._journal, self._position, until)
                self._events_read += len(events)
                self._undelivered += self._read_events(events)
            except JournalError as damage:
                self._damage = damage  # some of the events may have been applied: they are not read again
                raise
            self._position = position

    def _rewind(self) -> None:
        """Read the journal from its beginning next time."""
        self._position = START
        self._events_read = self._undelivered = 0


def error_line(error: BaseException) -> str:
    """Return an error's message, or its kind where it has none, cut to what a terminal shows."""
    text = without_password(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= MESSAGE_LENGTH else f"{text[: MESSAGE_LENGTH - 3]}..."
