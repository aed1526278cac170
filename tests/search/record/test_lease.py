"""One driver at a time where nothing can be locked; on a disk, which a store may be as well."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from search.record import lease
from search.record.home import DRIVER_FILE
from search.record.lease import Beat, Lease, is_driven, read
from tests.waiting import wait_until
from trainable.errors import UserError
from trainable.files.store import Store, StoreError

OTHER = Beat(owner="process 2 on another machine, def", term=9_999_999_999, count=1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(lease, "SILENCE_SECONDS", 2.0)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A link to where the store is: turned elsewhere at one stroke, it is a store that is down."""
    (tmp_path / "there").mkdir()
    (tmp_path / "down").write_text("a file where a folder should be")
    turn(tmp_path / "store", "there")
    return tmp_path / "store"


@pytest.fixture
def store(place: Path) -> Store:
    return Store(place.as_uri())


def turn(place: Path, name: str) -> None:
    place.with_name("new").symlink_to(place.with_name(name))
    os.replace(place.with_name("new"), place)


def write(store: Store, beat: Beat) -> None:
    store.write(DRIVER_FILE, beat.model_dump_json().encode())


def taken(store: Store, said: list[str] | None = None) -> Lease:
    return Lease(store, (said if said is not None else []).append)


def taken_over(store: Store, held: Lease) -> bool:
    """Another driver's word is there, again where a beat came in between."""
    write(store, OTHER)
    return held.lost


def test_a_second_driver_is_refused_while_the_first_lives_and_not_afterwards(store: Store) -> None:
    with taken(store) as first:
        with pytest.raises(UserError, match=r"is running already, in process \d+ on "), taken(store):
            pass
        assert (first.lost, first.sure, is_driven(store)) == (False, True, True)
    assert not is_driven(store)
    said: list[str] = []
    with taken(store, said):
        pass
    assert said == [], "one that has ended is not waited for"


@pytest.mark.slow("waits for a lease")
def test_a_driver_that_died_is_waited_for_and_replaced(store: Store) -> None:
    write(store, OTHER)
    began, said = time.monotonic(), list[str]()
    with taken(store, said) as held:
        assert time.monotonic() - began >= 2.0
        assert not held.lost
    assert ["waiting 2 s" in line for line in said] == [True]


@pytest.mark.parametrize("ended", [False, True])
def test_who_was_thought_dead_finds_the_lease_lost_and_leaves_it_to_the_other(
    store: Store, ended: bool
) -> None:
    with taken(store) as first:
        wait_until(lambda: taken_over(store, first))
        write(store, OTHER.model_copy(update={"count": 9, "ended": ended}))
        assert (first.lost, first.sure) == (True, False)
    assert read(store) == OTHER.model_copy(update={"count": 9, "ended": ended})


def test_what_an_earlier_driver_writes_late_changes_nothing(store: Store) -> None:
    write(store, Beat(owner="process 1 on another machine, abc", term=3, count=1, ended=True))
    with taken(store) as held:
        write(store, Beat(owner="process 1 on another machine, abc", term=3, count=2))
        wait_until(lambda: (found := read(store)) is not None and found.term > 3)
        assert not held.lost


def test_a_term_is_later_than_any_before_also_where_they_were_deleted(store: Store) -> None:
    first = term_of_a_driver(store)
    store.remove(DRIVER_FILE)
    time.sleep(1.0)
    second = term_of_a_driver(store)
    assert first < second < term_of_a_driver(store)


def term_of_a_driver(store: Store) -> int:
    with taken(store):
        found = read(store)
    assert found is not None
    return found.term


def test_a_driver_that_hangs_is_not_sure_of_its_lease(place: Path, store: Store) -> None:
    with taken(store) as held:
        turn(place, "down")
        wait_until(lambda: not held.sure)
        assert not held.lost
        turn(place, "there")
        wait_until(lambda: held.sure)


def test_a_beat_that_someone_deleted_is_written_again(store: Store) -> None:
    with taken(store) as held:
        store.remove(DRIVER_FILE)
        wait_until(lambda: read(store) is not None)
        assert not held.lost


def test_what_is_no_beat_is_told_and_does_not_end_the_beats(store: Store) -> None:
    with taken(store) as held:
        store.write(DRIVER_FILE, b"")
        store.remove(DRIVER_FILE)
        wait_until(lambda: read(store) is not None)
        assert not held.lost
    for content in (b"[]", b'{"owner": null, "term": "x", "count": 1}', b"[" * 100_000):
        store.write(DRIVER_FILE, content)
        with pytest.raises(StoreError, match="not what a driver writes"), taken(store):
            pass


def test_a_store_that_is_down_at_the_end_is_left_as_it_is(place: Path, store: Store) -> None:
    with taken(store):
        turn(place, "down")


def test_a_store_that_nothing_can_be_written_to_is_told_at_once(place: Path, store: Store) -> None:
    turn(place, "down")
    with pytest.raises(StoreError), taken(store):
        pass
