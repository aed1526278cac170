"""Stores the checkpoints of one trial in a folder, or in a store with a folder of this machine before it.

The folder of a machine is lost with the machine; what is in the store is not. A checkpoint counts there as
soon as its history is there, which is written last.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trainable.checkpoints import checkpoint
from trainable.files.folders import temporary_folder
from trainable.files.paths import cache_root
from trainable.files.store import ATTEMPTS, Store, StoreError, is_uri
from trainable.training.metrics import EpochResult

# So long a store is asked for the checkpoint to continue from: its restart should not cost a trial a retry.
PATIENCE_SECONDS = 90.0
PAUSE_SECONDS = 2.0

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class StoredCheckpoint:
    """A finished checkpoint in a store."""

    name: str
    epoch: int
    step: int = 0


@dataclass(frozen=True)
class CheckpointStore:
    """The checkpoints of one trial."""

    folder: Path  # on this machine
    store: Store | None = None

    @classmethod
    def at(cls, address: str, key: str = "", attempts: int = ATTEMPTS) -> CheckpointStore:
        """Return the checkpoints in a folder, or behind a URI; then each machine has a folder in its cache.

        That folder is another one for each `key`: it has no checkpoints of an earlier search with the same
        URI.
        """
        if not is_uri(address):
            return cls(Path(address))
        store = Store(address, attempts)
        digest = hashlib.sha256(f"{store.at().uri} {key}".encode()).hexdigest()
        return cls(cache_root() / "trials" / digest[:16], store)

    def newest_state(self) -> dict[str, Any] | None:
        """Return the state of the newest checkpoint that can be read, of those here and in the store.

        It returns None if there is none. Raises StoreError if the store does not answer.
        """
        for each in _patiently(self._found):
            state = checkpoint.readable(each) if isinstance(each, checkpoint.Checkpoint) else self._read(each)
            if state is not None:
                return state
        return None

    def save(self, state: Mapping[str, Any], history: Sequence[EpochResult], step: int = 0) -> None:
        """Write the checkpoint of the history's last epoch and so many steps of the next one, as
        `checkpoint.save` does. If there is a store, it is moved there.

        If the store cannot be reached, only the checkpoint in it is missing: a later one is written there
        again.
        """
        saved = checkpoint.save(self.folder, state, history, step)
        if self.store is None:
            return
        try:
            for file in (checkpoint.STATE, checkpoint.HISTORY):
                self.store.put(saved.folder / file, f"{saved.folder.name}/{file}")
            checkpoint.remove(self.folder)
            # later ones may be of another process that is further
            age = checkpoint.age
            earlier = [each for each in _finished(self.store) if age(each) <= age(saved)]
            for each in earlier[checkpoint.KEEP_LAST :]:
                self._drop(each)
        except StoreError as error:
            warnings.warn(f"the checkpoint is on this machine alone: {error}", stacklevel=2)

    def epochs(self) -> int:
        """Return how many epochs the newest checkpoint that can be opened covers: training goes on there.

        What only a whole reading finds, in a tensor or in a checkpoint of the store, is not seen. Raises
        StoreError if the store does not answer.
        """
        opened = (each for each in self._found() if isinstance(each, StoredCheckpoint) or each.opens())
        return next((each.epoch for each in opened), 0)

    def history(self) -> tuple[EpochResult, ...]:
        """Return the results of the epochs that the newest checkpoint covers; none if there is none.

        Raises StateError for another version's, StoreError if the store does not answer.
        """
        newest = next(iter(self._found()), None)
        if not isinstance(newest, StoredCheckpoint):
            return newest.history() if newest is not None else ()
        assert self.store is not None
        name = f"{newest.name}/{checkpoint.HISTORY}"
        return checkpoint.history_in(self.store.read(name) or b"[]", str(self.store.at(name)))

    def remove(self) -> None:
        """Remove every checkpoint, here and in the store. Raises StoreError."""
        checkpoint.remove(self.folder)
        for each in _finished(self.store):
            self._drop(each)

    def _found(self) -> list[checkpoint.Checkpoint | StoredCheckpoint]:
        """Return all whole checkpoints, newest first; of two that cover as much, this machine's is first."""
        here, there = checkpoint.finished(self.folder), _finished(self.store)
        found: list[checkpoint.Checkpoint | StoredCheckpoint] = [*here, *there]
        return sorted(found, key=checkpoint.age, reverse=True)

    def _read(self, there: StoredCheckpoint) -> dict[str, Any] | None:
        """Return the state of a checkpoint in the store; None, with a warning, if it cannot be read."""
        assert self.store is not None
        store, name = self.store, f"{there.name}/{checkpoint.STATE}"
        with temporary_folder() as folder:
            _patiently(lambda: store.get(name, folder / checkpoint.STATE))
            found = checkpoint.Checkpoint(folder, there.epoch, there.step)
            return checkpoint.readable(found, str(store.at(there.name)))

    def _drop(self, there: StoredCheckpoint) -> None:
        """Remove a checkpoint's history first, so that no half of one is ever found."""
        assert self.store is not None
        self.store.remove(f"{there.name}/{checkpoint.HISTORY}")
        self.store.remove(there.name)


def _finished(store: Store | None) -> list[StoredCheckpoint]:
    """Return the whole checkpoints in a store, newest first."""
    if store is None:
        return []
    files = store.files()
    named = {name: checkpoint.covered_by(name) for name in {path.split("/")[0] for path in files}}
    found = [StoredCheckpoint(name, *covered) for name, covered in named.items() if covered is not None]
    whole = [
        each
        for each in found
        if all(f"{each.name}/{file}" in files for file in (checkpoint.STATE, checkpoint.HISTORY))
    ]
    return sorted(whole, key=checkpoint.age, reverse=True)


def _patiently(ask: Callable[[], Answer]) -> Answer:
    """Return what a store answers, as soon as it does. Raises StoreError if that takes too long."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except StoreError:
            if time.monotonic() >= until:
                raise
            time.sleep(PAUSE_SECONDS)
