"""A search's folder before a store: what is put there, in which order, and what is brought from there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from search.followers import consumer
from search.followers.cursor import CURSOR_FILE
from search.followers.mirror import MIRROR_FILE
from search.record import lease
from search.record.folder import BEST_FILE, FACTS_FILE, STUDY_FILE, read_search
from search.record.journal import EVENTS_FILE, Journal, SearchEvent, StartEvent, TrialEvent
from search.record.lease import DRIVER_FILE, Lease
from search.record.storage import InStore, address_of, bring, brought, folder_of, leased, names_in, store_of
from search.study import Study
from trainable.errors import UserError
from trainable.files.store import Store, StoreError


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
    found = store_of(study)
    assert found is not None
    return found


@pytest.fixture
def folder(study: Study) -> Path:
    path = folder_of(study.storage, "mine")
    path.mkdir(parents=True)
    study.write(path)
    return path


@pytest.fixture
def held(store: Store) -> Iterator[Lease]:
    """The driver's lease; it writes one beat, at first."""
    with Lease(store, print) as taken:
        yield taken


def trial(number: int) -> TrialEvent:
    return TrialEvent(trial=number, values={}, own=False)


def puts(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[str], object]) -> list[str]:
    """The names of the files that are put from now on, in order; `meanwhile` happens just before each."""
    order: list[str] = []
    put = Store.write

    def writing(self: Store, name: str, content: bytes) -> None:
        order.append(name)
        meanwhile(name)
        put(self, name, content)

    monkeypatch.setattr(Store, "write", writing)
    return order


def soon_known(kept: InStore, number: int) -> bool:
    until = time.monotonic() + 30.0
    while not (known := kept.knows(number)) and time.monotonic() < until:
        time.sleep(0.05)
    return known


def write(folder: Path, *events: Any) -> None:
    with Journal(folder) as journal:
        for event in events:
            journal.append(event)


def test_a_search_is_named_by_its_folder_or_its_uri(tmp_path: Path) -> None:
    assert address_of("/searches", "mine") == "/searches/mine"
    assert address_of("s3://b/searches/?region=x", "mine") == "s3://b/searches/mine?region=x"
    assert folder_of("/searches", "mine") == Path("/searches/mine")
    assert folder_of("s3://b/c", "mine") != folder_of("s3://b/d", "mine")
    assert names_in(str(tmp_path / "nonsuch")) == []


def test_all_that_changes_is_put_there_and_brought_to_another_machine(
    study: Study, store: Store, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: Lease
) -> None:
    (folder / FACTS_FILE).write_text("{}")
    write(folder, trial(0))
    kept = InStore(folder, store, held)
    assert kept.sync().complete
    (folder / BEST_FILE).write_text("best")
    write(folder, trial(1))
    assert kept.sync().complete
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    there = brought(store.uri)
    assert there != folder
    assert read_search(there) == study
    for name in (FACTS_FILE, EVENTS_FILE, BEST_FILE):
        assert (there / name).read_bytes() == (folder / name).read_bytes()
    assert names_in(study.storage) == ["mine"]


def test_the_journal_there_is_older_than_the_files_beside_it(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, held: Lease
) -> None:
    """Whatever the driver writes in the midst: a journal that says finished never stands without the best."""

    def another_trial(name: str) -> None:
        if name == STUDY_FILE:
            write(folder, trial(1))

    order = puts(monkeypatch, another_trial)
    write(folder, trial(0))
    kept = InStore(folder, store, held)
    kept.sync()
    assert order == [STUDY_FILE, EVENTS_FILE]
    assert (store.read(EVENTS_FILE) or b"").count(b"\n") == 1
    assert kept.sync().complete
    assert (store.read(EVENTS_FILE) or b"").count(b"\n") == 2


def test_a_trial_is_known_there_once_it_was_put(store: Store, folder: Path, held: Lease) -> None:
    write(folder, trial(0))
    kept = InStore(folder, store, held)
    kept.start()
    try:
        assert soon_known(kept, 0)
        assert (store.read(EVENTS_FILE) or b"").count(b"\n") == 1
        assert not kept.knows(1)
    finally:
        kept.close(5.0)


def test_while_the_store_is_down_no_trial_is_known(
    tmp_path: Path, store: Store, folder: Path, held: Lease
) -> None:
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").write_text("a file where a folder should be")
    write(folder, trial(0))
    kept = InStore(folder, store, held)
    kept.start()
    try:
        assert not kept.knows(0)
        (tmp_path / "store").unlink()
        (tmp_path / "away").rename(tmp_path / "store")
        assert soon_known(kept, 0)
    finally:
        assert kept.close(5.0).complete


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
    kept = InStore(folder, store, held)
    with monkeypatch.context() as hung:
        hung.setattr(lease, "SILENCE_SECONDS", 0.0)
        assert not kept.sync().complete
    assert store.names() == [DRIVER_FILE]
    assert kept.sync().complete


@pytest.mark.parametrize("theirs", [b"theirs\n", None])
def test_one_that_was_replaced_while_it_hung_puts_nothing_over_the_others_journal(
    store: Store, folder: Path, held: Lease, monkeypatch: pytest.MonkeyPatch, theirs: bytes | None
) -> None:
    """Whatever has become of the other's sign of life."""
    write(folder, trial(0))
    kept = InStore(folder, store, held)
    assert kept.sync().complete
    with monkeypatch.context() as hung:
        hung.setattr(lease, "SILENCE_SECONDS", 0.0)
        assert not kept.sync().complete
    before = store.read(EVENTS_FILE) or b""
    store.write(EVENTS_FILE, before + (theirs or b""))
    write(folder, trial(1))
    assert kept.sync().complete == (theirs is None)
    assert held.lost == (theirs is not None)
    assert (store.read(EVENTS_FILE) or b"").startswith(before + (theirs or b""))


def test_what_is_no_search_is_not_taken_for_one(study: Study, store: Store, tmp_path: Path) -> None:
    store.write("trials/0000/epoch-0001/state.pt", b"of a search whose study was deleted")
    refused = pytest.raises(UserError, match="exists and is not a search")
    with refused, leased(study, tmp_path / "mine", print):
        pass


def test_a_journal_that_is_cut_or_gone_is_not_put(store: Store, folder: Path, held: Lease) -> None:
    write(folder, trial(0), trial(1))
    kept = InStore(folder, store, held)
    kept.sync()
    before = store.read(EVENTS_FILE)
    assert before is not None
    for content in (before[:-5], b""):
        (folder / EVENTS_FILE).write_bytes(content)
        assert "is cut or gone" in str(kept.sync())
    (folder / EVENTS_FILE).unlink()
    assert "is cut or gone" in str(kept.sync())
    assert store.read(EVENTS_FILE) == before


def test_mlflows_cursor_never_points_beyond_the_journal_there(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, held: Lease
) -> None:
    (folder / CURSOR_FILE).write_text("sent before")
    write(folder, trial(0))
    order = puts(monkeypatch, lambda name: (folder / CURSOR_FILE).write_text("sent meanwhile"))
    InStore(folder, store, held).sync()
    assert (order[-2:], store.read(CURSOR_FILE)) == ([EVENTS_FILE, CURSOR_FILE], b"sent before")


def test_a_journal_that_the_store_has_lost_is_told(store: Store, folder: Path, held: Lease) -> None:
    InStore(folder, store, held).sync()
    store.write("trials/0000/epoch-0001/state.pt", b"")
    with pytest.raises(UserError, match=r"events.jsonl is missing, but trials/ is not"):
        bring(store, folder)


def test_what_did_not_get_there_is_kept(store: Store, folder: Path, held: Lease) -> None:
    write(folder, trial(0))
    InStore(folder, store, held).sync()
    write(folder, StartEvent(trial=0, attempt=1, epoch=0))
    (folder / BEST_FILE).write_text("written with it")
    before = (folder / EVENTS_FILE).read_bytes()
    assert bring(store, folder)
    assert ((folder / EVENTS_FILE).read_bytes(), (folder / BEST_FILE).exists()) == (before, True)


def test_files_beside_an_equal_journal_are_brought_too(store: Store, folder: Path, held: Lease) -> None:
    write(folder, trial(0))
    InStore(folder, store, held).sync()
    store.write(BEST_FILE, b"put last")
    assert bring(store, folder)
    assert (folder / BEST_FILE).read_bytes() == b"put last"


def test_another_drivers_journal_holds_and_the_mirror_of_the_own_goes(
    store: Store, folder: Path, held: Lease
) -> None:
    write(folder, trial(0))
    InStore(folder, store, held).sync()
    theirs = (store.read(EVENTS_FILE) or b"") + b"theirs\n"
    write(folder, StartEvent(trial=0, attempt=1, epoch=0))
    (folder / MIRROR_FILE).touch()
    store.write(EVENTS_FILE, theirs)
    assert bring(store, folder)
    assert ((folder / EVENTS_FILE).read_bytes(), (folder / MIRROR_FILE).exists()) == (theirs, False)


def test_a_driver_at_work_is_left_alone(store: Store, folder: Path, held: Lease) -> None:
    write(folder, trial(0))
    InStore(folder, store, held).sync()
    with Journal(folder) as journal:
        journal.append(SearchEvent(state="started", search_id="a", name="mine"))
        before = (folder / EVENTS_FILE).read_bytes()
        store.write(EVENTS_FILE, b"other\n")
        assert bring(store, folder)
        assert (folder / EVENTS_FILE).read_bytes() == before


def test_what_never_came_into_the_store_does_not_stand_in_the_way(study: Study, folder: Path) -> None:
    with leased(study, folder, print) as found:
        assert found is not None
        assert not folder.exists()
    folder.mkdir(parents=True)
    refused = pytest.raises(UserError, match="another driver is at work here, and hangs")
    with Journal(folder), refused, leased(study, folder, print):
        pass
    assert folder.exists()


def test_a_folder_needs_no_lease(study: Study, tmp_path: Path) -> None:
    with leased(study.model_copy(update={"storage": str(tmp_path)}), tmp_path / "mine", print) as found:
        assert found is None


def test_where_there_is_no_search_nothing_is_touched(store: Store, folder: Path) -> None:
    with pytest.raises(UserError, match=r"not a search folder \(no study.yaml in it\)"):
        brought(store.uri)
    assert (folder / STUDY_FILE).exists()


def test_a_store_that_is_down_is_told_before_anything_is_written(study: Study, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where a folder should be")
    with pytest.raises(StoreError, match="file://"), leased(study, folder_of(study.storage, "mine"), print):
        pass
    assert not folder_of(study.storage, "mine").exists()
