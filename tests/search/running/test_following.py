"""What follows the journal runs in a process of its own, and ends with the driver."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from search.record.cursor import read_cursor
from search.running.following import RECEIVERS, Followed, Following, May
from tests.search.followers.small_tracking import a_search, storage_with_database, study_in, write
from tests.search.reporting.test_importances import small_space
from tests.waiting import wait_until

pytestmark = pytest.mark.slow("each test starts a process that imports MLflow")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = storage_with_database(tmp_path_factory) / "mine"
    made.mkdir()
    return made


@pytest.fixture
def follow(folder: Path) -> Iterator[Callable[..., Following]]:
    started: list[Following] = []

    def start(may: Callable[[], May] | None = None) -> Following:
        started.append(Following(Followed(folder, None, study_in(folder.parent), small_space(), None), may))
        return started[-1]

    yield start
    for each in started:
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
    assert (cursor.events, cursor.until) == (len(events), events[-1].time)
    assert not is_alive(following.process_id)


def test_nothing_is_sent_that_may_not_be(folder: Path, follow: Callable[..., Following]) -> None:
    events, allowed = write(folder, a_search(folder)), May(until=0)
    following = follow(lambda: allowed)
    following.catch_up(5.0)
    assert sent(folder) == 0
    allowed = May()
    wait_until(lambda: sent(folder) == len(events))


def test_a_process_that_was_killed_is_told_and_costs_the_driver_nothing(
    folder: Path, follow: Callable[..., Following]
) -> None:
    following = follow()
    write(folder, a_search(folder))
    os.kill(following.process_id or 0, signal.SIGKILL)
    following.catch_up(60.0)
    following.close(60.0)
    assert [str(each) for each in following.backlogs] == [
        f"{receiver}: the process that sends has ended" for receiver in RECEIVERS
    ]


def test_a_driver_that_dies_takes_the_process_with_it(folder: Path, follow: Callable[..., Following]) -> None:
    following = follow()
    following._line.close()  # as its end does
    wait_until(lambda: not is_alive(following.process_id))


def is_alive(process: int | None) -> bool:
    """Return whether a child of this process goes on; one that has ended and was not waited for does not."""
    try:
        return f"{process} (" in Path(f"/proc/{process}/stat").read_text() and not is_zombie(process)
    except FileNotFoundError:
        return False


def is_zombie(process: int | None) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
