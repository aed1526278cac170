"""Tests that a follower of a journal delivers everything once, reports failures and never raises them."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from search.followers.consumer import Backlog, Consumer, error_line
from search.followers.following import undelivered
from search.record.journal import Event, Journal, StartEvent


class Listing(Consumer):
    """A consumer that delivers to a list, as long as `broken` is empty."""

    receiver = "the list"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.broken: str | None = None
        self.waiting: list[Event] = []
        self.delivered: list[Event] = []
        self.wanted: list[str] = []
        self.is_open = False

    def _open(self) -> None:
        self.is_open = True

    def _release(self) -> None:
        self.is_open = False

    def _read_events(self, events: Sequence[Event]) -> int:
        self.waiting += events
        return len(events)

    def _deliver(self) -> None:
        if self.broken is not None:
            raise ConnectionError(self.broken)
        self.delivered += self.waiting
        self.waiting = []

    def _report_failure(self, error: str) -> None:
        self.wanted.append(error)


class Stuck(Listing):
    """A consumer that delivers only after `goes_on` is set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.goes_on = threading.Event()

    def _deliver(self) -> None:
        self.goes_on.wait(60.0)
        super()._deliver()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("search.followers.consumer.POLL_SECONDS", 0.01)


def write(journal: Journal, count: int) -> list[Event]:
    return [journal.append(StartEvent(trial=0, attempt=1, epoch=number)) for number in range(count)]


def wait_for(consumer: Listing, count: int) -> None:
    for _ in range(6000):
        if len(consumer.delivered) >= count:
            return
        time.sleep(0.01)
    pytest.fail(f"{len(consumer.delivered)} of {count} events after a minute: {consumer.backlog()}")


def test_events_arrive_while_the_journal_grows_also_one_that_did_not_exist_yet(tmp_path: Path) -> None:
    consumer = Listing(tmp_path)
    consumer.start()
    with Journal(tmp_path) as journal:
        first = write(journal, 3)
        wait_for(consumer, 3)
        second = write(journal, 2)
        backlog = consumer.close(60)
    assert consumer.delivered == first + second
    assert backlog == Backlog("the list", 0)
    assert backlog.complete
    assert not consumer.is_open


def test_one_can_wait_until_it_has_caught_up_but_not_for_a_receiver_that_fails(tmp_path: Path) -> None:
    consumer = Listing(tmp_path)
    with Journal(tmp_path) as journal:
        consumer.start()
        written = write(journal, 50)
        assert consumer.catch_up(60).complete
        assert consumer.delivered == written
        consumer.broken = "down"
        write(journal, 2)
        assert consumer.catch_up(60).error == "down"
        assert consumer.close(60) == Backlog("the list", 2, "down")


def test_a_dead_receiver_raises_nothing_and_leaves_a_backlog(tmp_path: Path) -> None:
    consumer = Listing(tmp_path)
    consumer.broken = "refused\nby the peer"
    with Journal(tmp_path) as journal:
        consumer.start()
        write(journal, 3)
        backlog = consumer.close(60)
    assert backlog == Backlog("the list", 3, "refused by the peer")
    assert str(backlog) == "the list lacks 3 events: refused by the peer"
    assert not backlog.complete
    assert consumer.delivered == []
    assert set(consumer.wanted) == {"refused by the peer"}


def test_what_a_receiver_missed_arrives_when_it_is_back_in_order_and_once(tmp_path: Path) -> None:
    consumer = Listing(tmp_path)
    consumer.broken = "down"
    with Journal(tmp_path) as journal:
        written = write(journal, 2)
        assert consumer.sync().events == 2
        consumer.broken = None
        written += write(journal, 2)
        assert consumer.sync() == Backlog("the list", 0)
        assert consumer.sync() == Backlog("the list", 0)
    assert consumer.delivered == written


def test_a_broken_journal_is_reported_too(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        write(journal, 2)
    (tmp_path / "events.jsonl").write_text("{}\n{}\n")
    consumer = Listing(tmp_path)
    backlog = consumer.sync()
    assert backlog.error is not None
    assert "line 1: expected a line" in backlog.error
    assert consumer.sync() == backlog, "its events are not read twice"
    assert str(backlog).startswith("the list: ")
    assert not backlog.complete


def test_a_backlog_reads_as_a_sentence() -> None:
    assert str(Backlog("MLflow", 0)) == "MLflow has every event"
    assert str(Backlog("MLflow", 1, "down")) == "MLflow lacks 1 event: down"
    wanted = str(Backlog("MLflow", 0, None, 2, "trial 3: metric a%: bad name"))
    assert wanted == "MLflow has every event; 2 refused for good, the last: trial 3: metric a%: bad name"


def test_an_error_without_words_is_reported_by_its_kind() -> None:
    assert error_line(TimeoutError()) == "TimeoutError"
    assert len(error_line(ValueError("x " * 1000))) == 300


def test_one_that_is_waited_for_begins_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("search.followers.consumer.POLL_SECONDS", 60.0)
    consumer = Listing(tmp_path)
    with Journal(tmp_path) as journal:
        write(journal, 2)
        consumer.start()
        assert consumer.catch_up(60).complete
        assert len(consumer.delivered) == 2
        consumer.close(10.0)


def test_one_that_does_not_end_in_time_is_not_complete(tmp_path: Path) -> None:
    consumer = Stuck(tmp_path)
    with Journal(tmp_path) as journal:
        write(journal, 1)
        consumer.start()
        backlog = consumer.close(0.2)
    assert (backlog.complete, "has not answered in time" in str(backlog)) == (False, True)
    consumer.goes_on.set()
    wait_for(consumer, 1)


@pytest.mark.parametrize("rest", [True, False])
def test_the_rest_is_delivered_unless_it_is_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: bool
) -> None:
    monkeypatch.setattr("search.followers.consumer.POLL_SECONDS", 60.0)
    consumer = Listing(tmp_path)
    with Journal(tmp_path) as journal:
        consumer.start()
        write(journal, 1)
        consumer.close(60.0, rest=rest)
    assert (len(consumer.delivered), consumer.is_open) == (int(rest), False)


def test_the_end_of_a_search_says_what_was_not_delivered_and_what_was_refused() -> None:
    refused = Backlog("MLflow", 0, None, 1, "trial 3: model: its MLflow is too old")
    backlogs = [Backlog("MLflow", 2, "down"), refused, Backlog("optuna.db", 0)]
    assert list(undelivered(backlogs, "my searches/one")) == [
        "MLflow lacks 2 events: down; send it with `tunebook sync 'my searches/one'`",
        "MLflow has every event; 1 refused for good, the last: trial 3: model: its MLflow is too old",
    ]
