"""What follows the journal runs in a process of its own, and ends with the driver."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from search.followers import following as following_module
from search.followers.following import RECEIVERS, Following, Permission, Request
from search.record.cursor import read_cursor
from search.record.home import LOG_FILE, Home
from search.running.guests import Followed
from tests.integration.processes import has_ended
from tests.search.followers.small_tracking import a_search, storage_with_database, study_in, write
from tests.search.reporting.test_importances import small_space
from tests.waiting import wait_until
from trainable.tune.carried import Carried

pytestmark = pytest.mark.slow("each test starts a process that imports MLflow")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = storage_with_database(tmp_path_factory) / "mine"
    made.mkdir()
    return made


@pytest.fixture
def follow(folder: Path) -> Iterator[Callable[..., Following]]:
    made: list[Following] = []

    def start(may: Callable[[], Permission] = Permission, model: Carried | None = None) -> Following:
        followed = Followed(Home(folder), study_in(folder.parent), small_space(), model)
        made.append(Following(followed, may))
        return made[-1]

    yield start
    for each in made:
        each.close(0.0, rest=False)


def sent(folder: Path) -> int:
    cursor = read_cursor(folder)
    return 0 if cursor is None else cursor.events


def test_what_the_journal_holds_is_sent_and_the_process_ends(
    folder: Path, follow: Callable[..., Following]
) -> None:
    following = follow()
    events = write(folder, a_search(folder))
    following.close(60.0)
    assert [backlog.receiver for backlog in following.backlogs] == list(RECEIVERS)
    assert following.backlogs[0].complete, "these trials lack values that a copy for Optuna needs"
    cursor = read_cursor(folder)
    assert cursor is not None
    assert cursor.events == len(events)
    assert cursor.seconds == pytest.approx(events[-1].time - events[0].time)
    assert following.process_id is not None
    assert has_ended(following.process_id)


def test_nothing_is_sent_that_may_not_be(folder: Path, follow: Callable[..., Following]) -> None:
    events, allowed = write(folder, a_search(folder)), Permission(until=0)
    following = follow(lambda: allowed)
    wait_until(lambda: following.process_id is not None)
    following.catch_up(5.0)
    assert sent(folder) == 0
    allowed = Permission()
    wait_until(lambda: sent(folder) == len(events))


def test_what_arrives_in_the_store_meanwhile_is_sent_before_the_answer(
    folder: Path, follow: Callable[..., Following]
) -> None:
    events, allowed = write(folder, a_search(folder)), [Permission(until=0)]
    following = follow(lambda: allowed[0])
    started(following)
    threading.Timer(3.0, lambda: allowed.__setitem__(0, Permission())).start()
    following.catch_up(60.0)
    assert sent(folder) == len(events)


def test_a_process_that_was_killed_is_started_again(folder: Path, follow: Callable[..., Following]) -> None:
    following = follow()
    first = started(following)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: following.process_id != first)
    write(folder, a_search(folder))
    following.close(60.0)
    assert following.backlogs[0].complete


def test_one_that_ends_again_and_again_is_told(
    folder: Path, follow: Callable[..., Following], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following_module, "PROGRAM", "raise SystemExit('nothing works')")
    following = follow()
    following._keeper.join(60.0)
    following.close(60.0)
    assert "nothing works" in (folder / LOG_FILE).read_text(), "why it did not start"
    assert [str(each) for each in following.backlogs] == [
        f"{receiver}: the process that sends has ended" for receiver in RECEIVERS
    ]


def test_a_large_model_does_not_hold_up_the_driver(
    folder: Path, follow: Callable[..., Following], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following_module, "PROGRAM", "import time; time.sleep(600)")
    began = time.monotonic()
    follow(model=Carried("net", bytes(10**7), {}))
    assert time.monotonic() - began < 5.0


def test_an_answer_that_was_not_waited_for_is_none_to_the_next_question(
    folder: Path, follow: Callable[..., Following]
) -> None:
    following = follow()
    started(following)
    with following._uses:
        following._requests += 1
        assert following._line is not None
        following._line.send(Request(following._requests, 0.0))
    write(folder, a_search(folder))
    following.close(60.0)
    assert following.backlogs[0].complete
    assert len(following.backlogs) == len(RECEIVERS)


def test_a_driver_that_dies_takes_the_process_with_it(folder: Path, follow: Callable[..., Following]) -> None:
    following = follow()
    process = started(following)
    following._is_over.set()
    following._keeper.join()
    assert following._line is not None
    following._line.close()  # as its end does
    wait_until(lambda: has_ended(process))


def started(following: Following) -> int:
    """Return the process that sends, once there is one."""
    wait_until(lambda: following.process_id is not None)
    return following.process_id or -1
