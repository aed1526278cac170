"""Where a search is kept: in a folder, or in an object store that a folder of this machine goes before.

In an object store nothing can be locked or appended to. So the driver writes a folder of its own machine, as
always, while it holds the lease (`search.record.lease`), and what changes there is put into the store: the
journal before a trial starts that it tells of, all else within a second. The workers put their checkpoints
there themselves. Whoever goes on with the search, on whatever machine, brings it from the store first.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from search.followers.consumer import Consumer
from search.followers.cursor import CURSOR_FILE
from search.followers.mirror import MIRROR_FILE
from search.record.folder import BEST_FILE, FACTS_FILE, LOG_FILE, PICTURE_FILE, STUDY_FILE, note_elsewhere
from search.record.journal import EVENTS_FILE, Event, TrialEvent, is_locked, undriven
from search.record.lease import DRIVER_FILE, Lease, is_driven
from search.study import Study
from trainable.errors import UserError
from trainable.files.cache import state_root
from trainable.files.store import Store, is_uri
from trainable.recipe.yamlfile import write_whole

logger = logging.getLogger(__name__)

FILES = (FACTS_FILE, LOG_FILE, BEST_FILE, PICTURE_FILE, STUDY_FILE)
"""What is kept beside the journal, MLflow's cursor into it and the trials. The study is put last: where it is
there, a search can be gone on with. Optuna's mirror is not kept: the journal makes it again."""
SETTLE_SECONDS = 1.0
"""How long Ray's loop is kept waiting for the store before it is asked again."""


def folder_of(storage: str, name: str) -> Path:
    """Where the driver of a search writes on this machine."""
    if not is_uri(storage):
        return Path(storage) / name
    digest = hashlib.sha256(Store(storage).at().uri.encode()).hexdigest()[:12]
    return state_root() / "searches" / digest / name


def store_of(study: Study) -> Store | None:
    """The search's place in an object store; None where its storage is a folder."""
    return Store(study.storage).at(str(study.name)) if is_uri(study.storage) else None


def address_of(storage: str, name: str) -> str:
    """The search as a person names it: its folder, or its URI."""
    return Store(storage).at(name).uri if is_uri(storage) else str(Path(storage) / name)


def place_of(study: Study, folder: Path) -> str:
    """What a person names a search by whose folder on this machine this is: that, or its URI."""
    return address_of(study.storage, str(study.name)) if is_uri(study.storage) else str(folder)


def names_in(storage: str) -> list[str]:
    """The searches that are kept there, and what else is."""
    if is_uri(storage):
        return Store(storage).names()
    return sorted(each.name for each in Path(storage).iterdir()) if Path(storage).is_dir() else []


def brought(place: str) -> Path:
    """A search's folder on this machine, by its path or its URI; what a store holds is brought here first.

    Raises UserError where a store holds no search there.
    """
    if not is_uri(place):
        return Path(place)
    store = Store(place)
    folder = folder_of(store.parent.uri, store.name)
    if not bring(store, folder):
        raise UserError(f"{store}: not a search folder (no {STUDY_FILE} in it); give STORAGE/NAME")
    if not is_locked(folder):
        note_elsewhere(folder, is_driven(store))
    return folder


def bring(store: Store, folder: Path) -> bool:
    """Copy what a store holds of a search, but for its checkpoints; whether it holds one.

    A driver at work in the folder is left alone. So is a journal that goes on where the store's ends, with
    all that was written beside it: its last events did not get there. Raises UserError where the store has
    lost the journal, and not the trials.
    """
    if STUDY_FILE not in (names := store.names()):
        return False
    cursor = store.read(CURSOR_FILE)  # before the journal that it points into, and that before the others
    there = store.read(EVENTS_FILE) or b""
    if not there and "trials" in names:
        raise UserError(f"{store}: {EVENTS_FILE} is missing, but trials/ is not; start a new search")
    files = {name: store.read(name) if name in names else None for name in FILES}
    folder.mkdir(parents=True, exist_ok=True)
    with undriven(folder) as free:
        journal = folder / EVENTS_FILE
        here = journal.read_bytes() if journal.exists() else b""
        if not free or (len(here) > len(there) and here.startswith(there)):
            return True
        if not there.startswith(here):
            (folder / MIRROR_FILE).unlink(missing_ok=True)  # of trials that never were; it is made again
        for name, content in {**files, EVENTS_FILE: there, CURSOR_FILE: cursor}.items():
            if content is None:
                (folder / name).unlink(missing_ok=True)
            else:
                write_whole(folder / name, content, mode=0o600)
    return True


@contextmanager
def leased(study: Study, folder: Path, say: Callable[[str], None]) -> Iterator[Lease | None]:
    """This process is the search's only driver for the block, and has brought what the store holds of it.

    None where the storage is a folder itself, whose journal is locked. What is left in the folder of a search
    that never came into the store is deleted. Raises UserError while another driver is at work, there or in
    the folder, or where the store holds something else, StoreError where it cannot be used.
    """
    if (store := store_of(study)) is None:
        yield None
        return
    with Lease(store, say) as lease:
        _refuse_another_here(folder)
        if bring(store, folder):
            note_elsewhere(folder, False)
        elif set(store.names()) <= {DRIVER_FILE, *FILES}:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            raise UserError(f"{store}: exists and is not a search; choose another --name")
        yield lease


def _refuse_another_here(folder: Path) -> None:
    """Raises UserError where a driver on this machine, which hangs, has not let go of the folder."""
    if folder.exists():
        with undriven(folder) as free:
            if not free:
                raise UserError(f"{folder}: another driver is at work here, and hangs; end it first")


class InStore(Consumer):
    """Keeps a search's folder in its store, for as long as this driver has the lease."""

    def __init__(self, folder: Path, store: Store, lease: Lease) -> None:
        super().__init__(folder)
        self.receiver = str(store)
        self._folder, self._store, self._lease = folder, store, lease
        self._there: dict[str, bytes] = {}
        """The digests of the files as they were put."""
        self._journal_there = self._taken_trials = self._known_trials = 0
        self._is_compared = False

    def knows(self, trial: int) -> bool:
        """Whether a trial may start: the store answers, and tells of it. Waits, but not for long."""
        self.catch_up(SETTLE_SECONDS, lambda: trial < self._known_trials)
        return trial < self._known_trials and self.problem is None

    def _open(self) -> None:
        if self._lease.lost:
            raise UserError("another driver has taken this search over")
        if not self._lease.sure:
            self._is_compared = False
            raise UserError("no sign of life could be written for a while")

    def _take(self, events: Sequence[Event]) -> int:
        self._taken_trials += sum(isinstance(event, TrialEvent) for event in events)
        return len(events)

    def _deliver(self) -> None:
        """Put what has changed: first what the journal tells of, and last the cursor that points into it."""
        cursor = self._content(CURSOR_FILE)
        journal = self._content(EVENTS_FILE) or b""
        whole = journal[: journal.rfind(b"\n") + 1]
        if len(whole) < self._journal_there:
            raise UserError(f"{self._journal}: is cut or gone; the store keeps what it has")
        self._compare(whole)
        for name in FILES:
            self._put(name, self._content(name))
        self._put(EVENTS_FILE, whole or None)
        self._put(CURSOR_FILE, cursor)
        self._journal_there, self._known_trials = len(whole), self._taken_trials

    def _compare(self, journal: bytes) -> None:
        """See to it that the store's journal is an earlier state of this one: at first, and after each spell
        in which another driver may have been at work."""
        if not self._is_compared:
            if not journal.startswith(self._store.read(EVENTS_FILE) or b""):
                self._lease.give_up()
                raise UserError("another driver has gone on with this search")
            self._is_compared = True

    def _content(self, name: str) -> bytes | None:
        file = self._folder / name
        return file.read_bytes() if file.exists() else None

    def _put(self, name: str, content: bytes | None) -> None:
        if content is not None and self._there.get(name) != (digest := hashlib.sha256(content).digest()):
            self._open()
            self._store.write(name, content)
            self._there[name] = digest

    def _release(self) -> None:
        """The lease is the driver's."""

    def _tell(self, error: str) -> None:
        logger.warning("%s: %s", self.receiver, error)
