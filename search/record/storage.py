"""Copies a search from an object store to a folder of this machine, and decides who may drive a search.

In an object store nothing can be locked or appended to. So the driver writes a folder of its own machine, as
always, while it holds the lease (`search.record.lease`), and what changes there is copied to the store
(`search.followers.in_store`). The workers write their checkpoints to the store themselves. Whoever goes on
with the search, on whatever machine, copies it from the store first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from search.record.home import (
    CURSOR_FILE,
    DRIVER_FILE,
    ELSEWHERE_FILE,
    EVENTS_FILE,
    IN_STORE,
    MIRROR_FILE,
    NO_SEARCH,
    SYNCED_FILE,
    TRIALS_FOLDER,
    Home,
)
from search.record.lease import Lease, is_driven
from search.record.lock import LockedError, empty, is_locked, locked
from search.study import STUDY_FILE
from trainable.errors import UserError
from trainable.files.store import Store
from trainable.recipe.yamlfile import write_whole


def local_folder(address: str) -> Path:
    """Return the folder on this machine of a search that is named by its folder or its URI.

    What a store holds of it is copied there first, but not while a driver of this machine is at work. Raises
    UserError where a store holds no search there.
    """
    home = Home.at(address)
    if home.store is None:
        return home.folder
    if STUDY_FILE not in home.store.names():
        raise UserError(f"{home.store}: {NO_SEARCH} (no {STUDY_FILE} in it); give STORAGE/NAME")
    with suppress(LockedError), locked(home.folder):
        copy_from(home.store, home.folder)
    if not is_locked(home.folder):
        _note_elsewhere(home.folder, is_driven(home.store))
    return home.folder


@contextmanager
def driving(home: Home, say: Callable[[str], None]) -> Iterator[Lease | None]:
    """Make this process the search's only driver for the block; nothing is written before that is certain.

    It has the folder's lock. Where the search is in a store, it also has the lease, which the block receives,
    and the folder holds what the store holds. Raises UserError while another driver is at work, here or
    elsewhere, or where the store holds something else; StoreError where the store cannot be used.
    """
    with locked(home.folder):
        if home.store is None:
            yield None
            return
        with Lease(home.store, say) as lease:
            if copy_from(home.store, home.folder):
                _note_elsewhere(home.folder, False)
            elif set(home.store.names()) <= {DRIVER_FILE, *IN_STORE}:
                empty(home.folder)  # the remains of a search that never reached the store
            else:
                raise UserError(
                    f"{home.store}: exists and is not a search; choose another --name of `tunebook search`"
                )
            yield lease


def copy_from(store: Store, folder: Path) -> bool:
    """Copy what a store holds of a search, except its checkpoints; return whether it holds a search.

    If this folder's journal continues the store's, its last events did not get there: then the journal is
    left alone, with all that was written beside it. The caller must have the folder's lock. Raises UserError
    where the store has lost the journal, but not the trials.
    """
    if STUDY_FILE not in (names := store.names()):
        return False
    cursor, synced = store.read(CURSOR_FILE), store.read(SYNCED_FILE)
    # both were read before the journal that they refer to; the other files come last
    stored = store.read(EVENTS_FILE) or b""
    if not stored and TRIALS_FOLDER in names:
        raise UserError(f"{store}: {EVENTS_FILE} is missing, but trials/ is not; start a new search")
    files = {name: store.read(name) if name in names else None for name in IN_STORE}
    journal = folder / EVENTS_FILE
    local = journal.read_bytes() if journal.exists() else b""
    if len(local) > len(stored) and local.startswith(stored):
        return True
    if not stored.startswith(local):
        (folder / MIRROR_FILE).unlink(missing_ok=True)  # it holds trials of another course; it is rebuilt
    for name, content in {**files, EVENTS_FILE: stored, SYNCED_FILE: synced, CURSOR_FILE: cursor}.items():
        if content is None:
            (folder / name).unlink(missing_ok=True)
        else:
            write_whole(folder / name, content, mode=0o600)
    return True


def _note_elsewhere(folder: Path, running: bool) -> None:
    """Remember whether another machine's driver is at work on a search that was copied here."""
    if running:
        (folder / ELSEWHERE_FILE).touch()
    else:
        (folder / ELSEWHERE_FILE).unlink(missing_ok=True)
