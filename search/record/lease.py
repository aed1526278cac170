"""Gives one driver at a time, on whatever machine, the right to drive a search in an object store.

A store of objects has no locks. So the driver writes its name and a count into `.driver` every few seconds. A
new driver watches what it finds there; where the count does not change for long enough, the search is its
own.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from pydantic import ValidationError

from search.record.clock import awake_or_asleep
from search.record.home import DRIVER_FILE
from trainable.errors import UserError
from trainable.files.store import Store, StoreError
from trainable.recipe.base import Spec

BEAT_SECONDS = 2.0
# a driver without a beat for so long counts as dead. A beat that hangs takes 9 s: three requests of 3 s each
SILENCE_SECONDS = 20.0
# a beat younger than this, by the clocks of two machines, is shown as a living driver's
RECENT_SECONDS = 60.0

logger = logging.getLogger(__name__)


class Beat(Spec):
    """A driver's sign of life: its name, its term, a count, and whether it has ended.

    The last beat stays, and each new driver's term is one higher. So a driver that was thought dead and wakes
    up finds another's name, and never nothing; and what it may still write is recognised as old.
    """

    owner: str
    term: int
    count: int
    ended: bool = False


class Lease:
    """A lease for a block, unless another driver takes it meanwhile: then it is `lost`, for good.

    Entering raises UserError while another driver is at work there, StoreError where nothing can be written.
    It says when it waits for a driver that may be alive.
    """

    def __init__(self, store: Store, say: Callable[[str], None]) -> None:
        self._store = Store(store.uri, attempts=1)
        self._say = say
        self._owner = f"process {os.getpid()} on {socket.gethostname()}, {secrets.token_hex(4)}"
        self._term = self._count = 0
        self._renewed = 0.0
        self._lost = False
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._keep_beating, name=f"driver of {store}", daemon=True)

    def __str__(self) -> str:
        return str(self._store)

    @property
    def lost(self) -> bool:
        """Whether another driver has taken the search over: then nothing of it may be written any more."""
        return self._lost

    @property
    def sure(self) -> bool:
        """Whether certainly nobody has taken the search over; after a pause only the next beat can say."""
        return not self._lost and awake_or_asleep() - self._renewed < SILENCE_SECONDS / 2

    def __enter__(self) -> Self:
        # not below the clock, in case someone has deleted what earlier drivers wrote
        self._term = max(self._wait_for_silence() + 1, int(time.time()))
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()
        try:
            if not self._is_anothers():
                self._beat(ended=True)
        except StoreError as left:  # the next driver waits until there are no beats, and begins
            logger.warning("%s", left)

    def give_up(self) -> None:
        """Give up the lease: what is in the store is not this driver's."""
        self._lost = True

    def _keep_beating(self) -> None:
        while not self._ends.wait(BEAT_SECONDS) and not self._lost:
            try:
                began = awake_or_asleep()
                if self._is_anothers():
                    self._lost = True
                elif awake_or_asleep() - began < SILENCE_SECONDS / 2:  # otherwise what was read is old
                    self._beat()
            except StoreError as error:  # tried again: only another driver can take the lease
                logger.warning("%s", error)

    def _is_anothers(self) -> bool:
        found = read(self._store)
        return self._lost or (found is not None and found.owner != self._owner and found.term >= self._term)

    def _beat(self, *, ended: bool = False) -> None:
        began = awake_or_asleep()
        self._count += 1
        beat = Beat(owner=self._owner, term=self._term, count=self._count, ended=ended)
        self._store.write(DRIVER_FILE, beat.model_dump_json().encode())
        self._renewed = began

    def _wait_for_silence(self) -> int:
        """Return the last term, once no driver has written for so long that none is at work."""
        seen = read(self._store)
        if seen is None or seen.ended:
            return 0 if seen is None else seen.term
        self._say(f"{self}: waiting {SILENCE_SECONDS:g} s to see whether the last driver is still running")
        now, until = seen, time.monotonic() + SILENCE_SECONDS
        while time.monotonic() < until:
            time.sleep(BEAT_SECONDS / 2)
            with suppress(StoreError):  # one request in twenty may fail
                now = read(self._store) or seen
            if now.ended:
                break
            if now != seen:
                holder = now.owner.rpartition(",")[0]
                raise UserError(f"{self}: this search is running already, in {holder}")
        return now.term


def read(store: Store) -> Beat | None:
    """Return the last beat in a store; None where there is none. Raises StoreError, also for damage."""
    content = store.read(DRIVER_FILE)
    if content is None:
        return None
    try:
        return Beat.model_validate_json(content)
    except ValidationError:
        raise StoreError(f"{store.at(DRIVER_FILE)}: not what a driver writes") from None


def is_driven(store: Store) -> bool:
    """Say whether a driver seems to be at work there, by the age of its last beat."""
    found, age = read(store), store.age(DRIVER_FILE)
    return found is not None and not found.ended and age is not None and age < RECENT_SECONDS
