"""Tests which files of a search's folder are put into a store, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from search.followers import consumer
from search.followers.in_store import InStore
from search.record import lease
from search.record.folder import read_search
from search.record.home import (
    BEST_FILE,
    CURSOR_FILE,
    DRIVER_FILE,
    EVENTS_FILE,
    FACTS_FILE,
    SYNCED_FILE,
    Home,
    names_below,
)
from search.record.journal import Journal, TrialEvent
from search.record.lease import Lease
from search.record.storage import local_folder
from search.study import STUDY_FILE, Study
from tests.waiting import wait_until
from trainable.files.store import Store


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(lease, "BEAT_SECONDS", 60.0)
    monkeypatch.setattr(consumer, "POLL_SECONDS", 0.05)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.from_tree(
        {"name": "mine", "data": {"path": "digits"}, "storage": (tmp_path / "store").as_uri()}
    ).resolved("mine")


@pytest.fixture
def store(study: Study) -> Store:
    return Store(Home.of(study).address)


@pytest.fixture
def folder(study: Study) -> Path:
    path = Home.of(study).folder
    path.mkdir(parents=True)
    study.write(path)
    return path


@pytest.fixture
def held(store: Store) -> Iterator[Lease]:
    """Holds the driver's lease, which writes one beat at first."""
    with Lease(store, print) as taken:
        yield taken


def trial(number: int) -> TrialEvent:
    return TrialEvent(trial=number, values={}, own=False)


def puts(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[str], object]) -> list[str]:
    """Return the names of the files that are put from now on; `meanwhile` runs just before each."""
    order: list[str] = []
    put = Store.write

    def writing(self: Store, name: str, content: bytes) -> None:
        order.append(name)
        meanwhile(name)
        put(self, name, content)

    monkeypatch.setattr(Store, "write", writing)
    return order


def write(folder: Path, *events: Any) -> None:
    with Journal(folder) as journal:
        for event in events:
            journal.append(event)


def test_all_that_changes_is_put_there_and_copied_to_another_machine(
    study: Study, store: Store, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: Lease
) -> None:
    (folder / FACTS_FILE).write_text("{}")
    write(folder, trial(0))
    follower = InStore(folder, store, held)
    assert follower.sync().complete
    (folder / BEST_FILE).write_text("best")
    write(folder, trial(1))
    assert follower.sync().complete
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    there = local_folder(store.uri)
    assert there != folder
    assert read_search(there) == study
    for name in (FACTS_FILE, EVENTS_FILE, BEST_FILE):
        assert (there / name).read_bytes() == (folder / name).read_bytes()
    assert names_below(study.storage) == ["mine"]


def test_the_journal_there_is_older_than_the_files_beside_it(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, held: Lease
) -> None:
    """So no journal there says that the search finished before the best recipe is there, too."""

    def another_trial(name: str) -> None:
        if name == STUDY_FILE:
            write(folder, trial(1))

    order = puts(monkeypatch, another_trial)
    write(folder, trial(0))
    follower = InStore(folder, store, held)
    follower.sync()
    assert order == [STUDY_FILE, EVENTS_FILE, SYNCED_FILE]
    assert (store.read(EVENTS_FILE) or b"").count(b"\n") == 1
    assert follower.sync().complete
    assert (store.read(EVENTS_FILE) or b"").count(b"\n") == 2


def test_a_trial_is_known_there_once_it_was_put(store: Store, folder: Path, held: Lease) -> None:
    write(folder, trial(0))
    follower = InStore(folder, store, held)
    follower.start()
    try:
        wait_until(lambda: follower.has_stored(0))
        assert (store.read(EVENTS_FILE) or b"").count(b"\n") == 1
        assert not follower.has_stored(1)
    finally:
        follower.close(60.0)


def test_while_the_store_is_down_no_trial_is_known(
    tmp_path: Path, store: Store, folder: Path, held: Lease
) -> None:
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").write_text("a file where a folder should be")
    write(folder, trial(0))
    follower = InStore(folder, store, held)
    follower.start()
    try:
        assert not follower.has_stored(0)
        (tmp_path / "store").unlink()
        (tmp_path / "away").rename(tmp_path / "store")
        wait_until(lambda: follower.has_stored(0))
    finally:
        assert follower.close(60.0).complete


def test_a_driver_that_lost_the_lease_puts_nothing_more(store: Store, folder: Path, held: Lease) -> None:
    write(folder, trial(0))
    held.give_up()
    backlog = InStore(folder, store, held).sync()
    assert (backlog.complete, store.names()) == (False, [DRIVER_FILE])
    assert "another driver has taken this search over" in str(backlog)


def test_a_driver_that_hung_puts_nothing_before_it_is_sure_again(
    store: Store, folder: Path, held: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, trial(0))
    follower = InStore(folder, store, held)
    with monkeypatch.context() as hung:
        hung.setattr(lease, "SILENCE_SECONDS", 0.0)
        assert not follower.sync().complete
    assert store.names() == [DRIVER_FILE]
    assert follower.sync().complete


@pytest.mark.parametrize("theirs", [b"theirs\n", None])
def test_one_that_was_replaced_while_it_hung_puts_nothing_over_the_others_journal(
    store: Store, folder: Path, held: Lease, monkeypatch: pytest.MonkeyPatch, theirs: bytes | None
) -> None:
    """It is so whatever has become of the other driver's sign of life."""
    write(folder, trial(0))
    follower = InStore(folder, store, held)
    assert follower.sync().complete
    with monkeypatch.context() as hung:
        hung.setattr(lease, "SILENCE_SECONDS", 0.0)
        assert not follower.sync().complete
    before = store.read(EVENTS_FILE) or b""
    store.write(EVENTS_FILE, before + (theirs or b""))
    write(folder, trial(1))
    assert follower.sync().complete == (theirs is None)
    assert held.lost == (theirs is not None)
    assert (store.read(EVENTS_FILE) or b"").startswith(before + (theirs or b""))


def test_a_journal_that_is_cut_or_gone_is_not_put(store: Store, folder: Path, held: Lease) -> None:
    write(folder, trial(0), trial(1))
    follower = InStore(folder, store, held)
    follower.sync()
    before = store.read(EVENTS_FILE)
    assert before is not None
    for content in (before[:-5], b""):
        (folder / EVENTS_FILE).write_bytes(content)
        assert "was cut or removed" in str(follower.sync())
    (folder / EVENTS_FILE).unlink()
    assert "was cut or removed" in str(follower.sync())
    assert store.read(EVENTS_FILE) == before


def test_mlflows_cursor_never_points_beyond_the_journal_there(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, held: Lease
) -> None:
    (folder / CURSOR_FILE).write_text("sent before")
    write(folder, trial(0))
    order = puts(monkeypatch, lambda name: (folder / CURSOR_FILE).write_text("sent meanwhile"))
    InStore(folder, store, held).sync()
    assert (order[-3:], store.read(CURSOR_FILE)) == ([EVENTS_FILE, SYNCED_FILE, CURSOR_FILE], b"sent before")
