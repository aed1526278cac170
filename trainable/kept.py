"""Where the checkpoints of one trial are kept: in a folder, or in a store that a folder goes before.

The folder of a machine is gone with the machine; what is in the store is not. A checkpoint counts there once
its history is there, which is put last.
"""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainable import checkpoint
from trainable.cache import cache_root
from trainable.metrics import EpochResult
from trainable.store import ATTEMPTS, Store, StoreError, is_uri

PATIENT_ATTEMPTS = 10
"""Of a request for what to go on from: a minute's outage is not to cost a trial one of its retries."""


@dataclass(frozen=True)
class There:
    """A finished checkpoint in a store."""

    name: str
    epoch: int


@dataclass(frozen=True)
class Kept:
    """The checkpoints of the trial whose folder on this machine this is."""

    folder: Path
    store: Store | None = None

    @classmethod
    def at(cls, place: str, key: str = "", attempts: int = ATTEMPTS) -> Kept:
        """Those in a folder, or behind a URI: then each machine has a folder in its own cache.

        That is another one for each `key`: an earlier trial of the same place has nothing in it.
        """
        if not is_uri(place):
            return cls(Path(place))
        store = Store(place, attempts)
        digest = hashlib.sha256(f"{store.at().uri} {key}".encode()).hexdigest()
        return cls(cache_root() / "trials" / digest[:16], store)

    def newest_state(self) -> dict[str, Any] | None:
        """The state of the newest checkpoint that can be read, of those here and in the store.

        None where there is none. Raises StoreError where the store does not say.
        """
        if self.store is not None:
            patient, here = replace(self.store, attempts=PATIENT_ATTEMPTS), checkpoint.latest(self.folder)
            for each in _finished(patient):
                if here is not None and each.epoch <= here.epoch:
                    break
                if (state := _state(patient, each)) is not None:
                    return state
        return checkpoint.newest_state(self.folder)

    def save(self, state: Mapping[str, Any], history: Sequence[EpochResult]) -> None:
        """Write the checkpoint of the history's last epoch, as `checkpoint.save`, but what a store has goes.

        A store that cannot be reached costs nothing but the checkpoint in it: a later one is put there again.
        """
        saved = checkpoint.save(self.folder, state, history)
        if self.store is None:
            return
        try:
            for file in (checkpoint.STATE, checkpoint.HISTORY):
                self.store.put(saved.folder / file, f"{saved.folder.name}/{file}")
            checkpoint.remove(self.folder)
            # later ones may be another process's, which is further
            earlier = [each for each in _finished(self.store) if each.epoch <= saved.epoch]
            for each in earlier[checkpoint.KEPT :]:
                self._drop(each)
        except StoreError as error:
            warnings.warn(f"the checkpoint is on this machine alone: {error}", stacklevel=2)

    def history(self) -> tuple[EpochResult, ...]:
        """The results of the epochs that the newest checkpoint covers; none where there is none.

        Raises StateError for another version's, StoreError where the store does not say.
        """
        here, there = checkpoint.latest(self.folder), next(iter(_finished(self.store)), None)
        if there is not None and (here is None or there.epoch > here.epoch):
            assert self.store is not None
            name = f"{there.name}/{checkpoint.HISTORY}"
            return checkpoint.history_in(self.store.read(name) or b"[]", str(self.store.at(name)))
        return here.history() if here is not None else ()

    def remove(self) -> None:
        """Remove every checkpoint, here and in the store. Raises StoreError."""
        checkpoint.remove(self.folder)
        for each in _finished(self.store):
            self._drop(each)

    def _drop(self, there: There) -> None:
        """Take a checkpoint's history away first, so that no half of one is ever found."""
        assert self.store is not None
        self.store.remove(f"{there.name}/{checkpoint.HISTORY}")
        self.store.remove(there.name)


def _finished(store: Store | None) -> list[There]:
    """The whole checkpoints in a store, newest first."""
    if store is None:
        return []
    files = store.files()
    named = {name: checkpoint.NAME.fullmatch(name) for name in {path.split("/")[0] for path in files}}
    found = [There(name, int(match[1])) for name, match in named.items() if match]
    whole = [
        each
        for each in found
        if all(f"{each.name}/{file}" in files for file in (checkpoint.STATE, checkpoint.HISTORY))
    ]
    return sorted(whole, key=lambda each: each.epoch, reverse=True)


def _state(store: Store, there: There) -> dict[str, Any] | None:
    """The state of a checkpoint in a store; None, and a warning, where it cannot be read."""
    with tempfile.TemporaryDirectory() as place:
        store.get(f"{there.name}/{checkpoint.STATE}", Path(place) / checkpoint.STATE)
        found = checkpoint.Checkpoint(Path(place), there.epoch)
        return checkpoint.readable(found, str(store.at(there.name)))
