"""Tests how a search in a store is copied to a folder of this machine, and who may drive a search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from search.record import lease
from search.record.folder import read_search
from search.record.home import BEST_FILE, CURSOR_FILE, ELSEWHERE_FILE, EVENTS_FILE, MIRROR_FILE, Home
from search.record.journal import Journal, StartEvent, TrialEvent
from search.record.lock import is_locked, locked
from search.record.storage import copy_from, driving, local_folder
from search.study import STUDY_FILE, Study
from trainable.errors import UserError
from trainable.files.store import Store, StoreError


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(lease, "BEAT_SECONDS", 60.0)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.from_tree(
        {"name": "mine", "data": {"path": "digits"}, "storage": (tmp_path / "store").as_uri()}
    ).resolved("mine")


@pytest.fixture
def home(study: Study) -> Home:
    return Home.of(study)


@pytest.fixture
def store(home: Home) -> Store:
    assert home.store is not None
    return home.store


@pytest.fixture
def folder(home: Home, study: Study, store: Store) -> Path:
    """Return the folder of a search with one trial, which is in the store, too."""
    home.folder.mkdir(parents=True)
    study.write(home.folder)
    write(home.folder, TrialEvent(trial=0, values={}))
    for file in home.folder.iterdir():
        store.write(file.name, file.read_bytes())
    return home.folder


def write(folder: Path, *events: Any) -> None:
    with Journal(folder) as journal:
        for event in events:
            journal.append(event)


def test_what_did_not_get_there_stays_here(store: Store, folder: Path) -> None:
    write(folder, StartEvent(trial=0, attempt=1, epoch=0))
    (folder / BEST_FILE).write_text("written with it")
    before = (folder / EVENTS_FILE).read_bytes()
    assert copy_from(store, folder)
    assert ((folder / EVENTS_FILE).read_bytes(), (folder / BEST_FILE).exists()) == (before, True)


def test_files_beside_an_equal_journal_are_copied_too(store: Store, folder: Path) -> None:
    store.write(BEST_FILE, b"put last")
    assert copy_from(store, folder)
    assert (folder / BEST_FILE).read_bytes() == b"put last"


def test_a_file_that_the_store_has_no_longer_goes_here_too(store: Store, folder: Path) -> None:
    for name in (BEST_FILE, CURSOR_FILE):
        (folder / name).touch()
    assert copy_from(store, folder)
    assert not (folder / BEST_FILE).exists()
    assert not (folder / CURSOR_FILE).exists()


def test_another_drivers_journal_holds_and_the_mirror_of_the_own_goes(store: Store, folder: Path) -> None:
    theirs = (store.read(EVENTS_FILE) or b"") + b"theirs\n"
    write(folder, StartEvent(trial=0, attempt=1, epoch=0))
    (folder / MIRROR_FILE).touch()
    store.write(EVENTS_FILE, theirs)
    assert copy_from(store, folder)
    assert ((folder / EVENTS_FILE).read_bytes(), (folder / MIRROR_FILE).exists()) == (theirs, False)


def test_a_journal_that_the_store_has_lost_is_reported(store: Store, folder: Path) -> None:
    store.remove(EVENTS_FILE)
    store.write("trials/0000/epoch-0001/state.pt", b"")
    with pytest.raises(UserError, match=r"events.jsonl is missing, but trials/ is not"):
        copy_from(store, folder)


@pytest.mark.usefixtures("refused_at_once")
def test_a_reader_leaves_the_folder_of_a_driver_at_work_alone(store: Store, folder: Path) -> None:
    before = (folder / EVENTS_FILE).read_bytes()
    store.write(EVENTS_FILE, b"other\n")
    with locked(folder):
        assert local_folder(store.uri) == folder
    assert (folder / EVENTS_FILE).read_bytes() == before
    assert local_folder(store.uri) == folder
    assert (folder / EVENTS_FILE).read_bytes() == b"other\n"


def test_a_reader_notes_that_another_machine_s_driver_is_at_work(home: Home, study: Study) -> None:
    assert home.store is not None
    home.store.write(STUDY_FILE, study.yaml().encode())
    with lease.Lease(home.store, print):
        local_folder(home.address)
        assert (home.folder / ELSEWHERE_FILE).exists()
    local_folder(home.address)
    assert not (home.folder / ELSEWHERE_FILE).exists()


def test_where_there_is_no_search_nothing_is_made_or_touched(home: Home, study: Study) -> None:
    refused = r"not a search folder \(no study.yaml in it\)"
    with pytest.raises(UserError, match=refused):
        local_folder(home.address)
    assert not home.folder.exists()
    home.folder.mkdir(parents=True)
    study.write(home.folder)
    with pytest.raises(UserError, match=refused):
        local_folder(home.address)
    assert (home.folder / STUDY_FILE).exists()


def test_a_driver_has_the_lock_the_lease_and_what_the_store_holds(
    home: Home, store: Store, study: Study
) -> None:
    store.write(STUDY_FILE, study.yaml().encode())
    with driving(home, print) as found:
        assert found is not None
        assert is_locked(home.folder)
        assert lease.is_driven(store)
        assert read_search(home.folder) == study
    assert not is_locked(home.folder)
    assert not lease.is_driven(store)


@pytest.mark.usefixtures("refused_at_once")
def test_a_second_driver_on_this_machine_is_refused_before_it_asks_the_store(home: Home) -> None:
    with driving(home, print):
        assert home.store is not None
        before = home.store.read(".driver")
        with pytest.raises(UserError, match="is running already"), driving(home, print):
            pass
        assert home.store.read(".driver") == before


def test_a_folder_needs_no_lease_but_the_lock(tmp_path: Path) -> None:
    with driving(Home(tmp_path / "mine"), print) as found:
        assert found is None
        assert is_locked(tmp_path / "mine")


def test_what_never_came_into_the_store_does_not_stand_in_the_way(home: Home, folder: Path) -> None:
    assert home.store is not None
    for name in home.store.names():
        home.store.remove(name)
    (folder / "trials" / "0000").mkdir(parents=True)
    with driving(home, print):
        assert is_locked(folder)
        assert {each.name for each in folder.iterdir()} == {".lock"}


def test_what_is_no_search_is_not_taken_for_one(home: Home, store: Store) -> None:
    store.write("trials/0000/epoch-0001/state.pt", b"of a search whose study was deleted")
    with pytest.raises(UserError, match="exists and is not a search"), driving(home, print):
        pass
    assert not home.folder.exists()


def test_a_store_that_is_down_is_reported_and_nothing_is_left(home: Home, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where a folder should be")
    with pytest.raises(StoreError, match="file://"), driving(home, print):
        pass
    assert not (tmp_path / "state").exists()
