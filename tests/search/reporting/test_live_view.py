"""Tests the lines of a running search: retries with their machine, slow machines, and the time left."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from search.deciding.finalists import Final
from search.deciding.pruning import Pruning
from search.record.journal import (
    EndEvent,
    EpochEvent,
    Journal,
    PlaceEvent,
    RetryEvent,
    StartEvent,
    TrialEvent,
)
from search.reporting.live_view import LiveView
from search.reporting.terminal import effort
from search.study import Study
from tests.epoch_results import epoch_result
from tests.search.small_events import begun, place, session
from trainable.tune.place import Place

STUDY = Study.from_tree({"data": {"path": "digits"}, "budget": {"trials": 10, "epochs": 2}})


class Clock:
    """A clock that both the journal and the view read."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("search.reporting.live_view.time.monotonic", made)
    monkeypatch.setattr("search.reporting.live_view.time.time", made)
    return made


@pytest.fixture
def journal(tmp_path: Path, clock: Clock) -> Journal:
    journal = Journal(tmp_path, clock)
    for event in begun(epochs=2):
        journal.append(event)
    return journal


def view_of(journal: Journal) -> LiveView:
    pruning, final = Pruning((), 3, "short"), Final(None, "none is trained again")
    return LiveView(STUDY, pruning, final, 1, journal.path.parent)


def train(
    journal: Journal, clock: Clock, trial: int, where: Place, seconds: float, rate: float = 1.0
) -> None:
    """Write a trial whose two epochs take so many seconds each."""
    journal.append(TrialEvent(trial=trial, values={}))
    journal.append(StartEvent(trial=trial, attempt=1, epoch=0))
    journal.append(PlaceEvent(trial=trial, ranks=(where,)))
    for number in (1, 2):
        clock.now += seconds
        result = epoch_result(number, images_per_second=rate, checkpoint_seconds=0.0)
        journal.append(EpochEvent(trial=trial, result=result))
    journal.append(EndEvent(trial=trial, state="finished"))


def minutes_left(line: str) -> float:
    found = re.search(r"about (?:(\d+) h )?(?:(\d+) min )?(?:(\d+) s )?left", line)
    assert found, line
    hours, minutes, seconds = (float(each or 0.0) for each in found.groups())
    return 60.0 * hours + minutes + seconds / 60.0


def test_a_retry_is_a_line_with_the_machine_and_the_cause(
    journal: Journal, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with view_of(journal) as view:
        journal.append(TrialEvent(trial=0, values={}))
        journal.append(StartEvent(trial=0, attempt=1, epoch=0))
        journal.append(PlaceEvent(trial=0, ranks=(place("h2", "3"),)))
        journal.append(RetryEvent(trial=0, reason="the disk is gone"))
        journal.append(StartEvent(trial=0, attempt=2, epoch=0))
        journal.append(RetryEvent(trial=0, reason="again"))
        journal.append(StartEvent(trial=0, attempt=3, epoch=0))
        journal.append(PlaceEvent(trial=0, ranks=(place("h1", "0"),)))
        journal.append(RetryEvent(trial=0, reason="once more"))
        journal.append(RetryEvent(trial=0, reason="its process did not start"))
        view.update()
    said = capsys.readouterr().out.splitlines()
    with view_of(journal) as later:
        later.update()
    assert "tried again" not in capsys.readouterr().out, "a driver that resumes does not say it again"
    assert said == [
        "trial 0 failed on h2 (10.0.0.2), GPU 3 and is tried again: the disk is gone",
        "trial 0 failed and is tried again: again",
        "trial 0 failed on h1 (10.0.0.1), GPU 0 and is tried again: once more",
        "trial 0 failed and is tried again: its process did not start",
    ]


def test_a_slow_machine_is_said_once(
    journal: Journal, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with view_of(journal) as view:
        for trial in range(6):
            host, rate = ("h1", 100.0) if trial % 2 else ("h2", 45.0)
            train(journal, clock, trial, place(host), 1.0, rate)
            clock.now += 1.0
            view.update()
    said = [line for line in capsys.readouterr().out.splitlines() if "of the rate" in line]
    assert said == ["h2 (10.0.0.2) trains at 0.45 of the rate of other machines with processors alone"]


@pytest.mark.parametrize("halted", [False, True], ids=["by another driver", "in the same driver"])
def test_the_time_left_counts_running_time_alone(
    halted: bool, journal: Journal, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten trials of two epochs at 6 s: 2 min. After half of them comes an hour in which nothing ran."""
    with view_of(journal) as view:
        for trial in range(5):
            train(journal, clock, trial, place(), 3.0)
            view.update()
            train_on(clock, 6.0, view)
        if halted:
            clock.now += 3600.0
            train(journal, clock, 5, place(), 3.0)
            view.update()
    if not halted:
        journal.append(session("interrupted"))
        clock.now += 3600.0
        journal.append(session("resumed"))
        with view_of(journal) as view:
            train(journal, clock, 5, place(), 3.0)
            clock.now += 1.0
            view.update()
    last = [line for line in capsys.readouterr().out.splitlines() if "trial 5" in line]
    assert minutes_left(last[-1]) == pytest.approx(4 * 12.0 / 60.0, rel=0.5)


def train_on(clock: Clock, seconds: float, view: LiveView) -> None:
    """Let time pass as a driver does, which updates the view all the time."""
    for _ in range(int(seconds)):
        clock.now += 1.0
        view.update()


def test_where_no_line_came_for_a_minute_one_says_how_far_the_trials_are(
    journal: Journal, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with view_of(journal) as view:
        for trial in (0, 1):
            journal.append(TrialEvent(trial=trial, values={}))
            journal.append(StartEvent(trial=trial, attempt=1, epoch=0))
        journal.append(EpochEvent(trial=0, result=epoch_result(1, val_accuracy=0.91)))
        for seconds in (59.0, 2.0, 58.0):
            clock.now += seconds
            view.update()
    said = capsys.readouterr().out.splitlines()
    assert said == ["trial 0: epoch 1 of 2, val_accuracy 0.9100; trial 1: in its first epoch"]


def test_what_a_search_trains_is_one_short_line_without_reasons() -> None:
    tree = {"data": {"path": "digits"}, "budget": {"trials": 10, "epochs": 2, "hours": 0.5}}
    line = effort(Study.from_tree(tree), Pruning((1,), 3, "because"), Final(None, "none, because"), 2)
    assert line.startswith("10 trials x 2 epochs at most, 2 at once, 30 min at most; compared after 1 epoch")
    assert "because" not in line
