"""The copy of a search's folder in its object store.

The store has a trial's event before that trial starts; everything else is copied within a second.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

from search.followers.consumer import Consumer
from search.record.home import CURSOR_FILE, EVENTS_FILE, IN_STORE, SYNCED_FILE
from search.record.journal import Event, TrialEvent
from search.record.lease import Lease
from trainable.errors import UserError
from trainable.files.regular import check_regular
from trainable.files.store import Store

logger = logging.getLogger(__name__)

SETTLE_SECONDS = 1.0  # Ray's loop waits at most this long for the store before it goes on and asks again


class InStore(Consumer):
    """A copy of a search's folder in its store, for as long as this driver has the lease."""

    def __init__(self, folder: Path, store: Store, lease: Lease) -> None:
        super().__init__(folder)
        self.receiver = str(store)
        self._folder, self._store, self._lease = folder, store, lease
        self._digests: dict[str, bytes] = {}  # the digests of the files as they were copied
        self._stored_bytes = self._read_trials = self._stored_trials = 0
        self._is_compared = False

    @property
    def stored_bytes(self) -> int:
        """How much of the journal the store has."""
        return self._stored_bytes

    def has_stored(self, trial: int) -> bool:
        """Say whether a trial may start: the store answers and its journal has the trial. Waits shortly."""
        self.catch_up(SETTLE_SECONDS, lambda: trial < self._stored_trials)
        return trial < self._stored_trials and self.problem is None

    def _open(self) -> None:
        if self._lease.lost:
            raise UserError("another driver has taken this search over")
        if not self._lease.sure:
            self._is_compared = False
            raise UserError("this driver could not renew its lease for some time")

    def _read_events(self, events: Sequence[Event]) -> int:
        self._read_trials += sum(isinstance(event, TrialEvent) for event in events)
        return len(events)

    def _deliver(self) -> None:
        """Copy what has changed: the files that the journal refers to, the journal, what refers to it."""
        cursor, synced = self._content(CURSOR_FILE), self._content(SYNCED_FILE)
        journal = self._content(EVENTS_FILE) or b""
        whole = journal[: journal.rfind(b"\n") + 1]
        if len(whole) < self._stored_bytes:
            raise UserError(f"{self._journal}: was cut or removed; the copy in the store stays as it is")
        self._compare(whole)
        for name in IN_STORE:
            self._put(name, self._content(name))
        self._put(EVENTS_FILE, whole or None)
        self._put(SYNCED_FILE, synced)
        self._put(CURSOR_FILE, cursor)
        self._stored_bytes, self._stored_trials = len(whole), self._read_trials

    def _compare(self, journal: bytes) -> None:
        """Make sure that the store's journal is an earlier state of this one.

        It is compared at first, and again after every time in which another driver may have been at work.
        """
        if not self._is_compared:
            if not journal.startswith(self._store.read(EVENTS_FILE) or b""):
                self._lease.give_up()
                raise UserError("another driver has gone on with this search")
            self._is_compared = True

    def _content(self, name: str) -> bytes | None:
        file = self._folder / name
        if not file.exists():
            return None
        check_regular(file)
        return file.read_bytes()

    def _put(self, name: str, content: bytes | None) -> None:
        if content is not None and self._digests.get(name) != (digest := hashlib.sha256(content).digest()):
            self._open()
            self._store.write(name, content)
            self._digests[name] = digest

    def _release(self) -> None:
        """Do nothing: the lease is the driver's."""

    def _report_failure(self, error: str) -> None:
        logger.warning("%s: %s", self.receiver, error)
