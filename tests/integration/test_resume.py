"""Drivers that die in mid-search, trials that die in mid-epoch: nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from search.record.home import Home
from search.record.journal import EndEvent, Event, RetryEvent, SearchEvent, StartEvent
from search.record.lock import is_locked
from search.results.search import Search
from tests.integration.small_searches import (
    PATIENCE_SECONDS,
    Driver,
    digits_study,
    epochs_by_trial,
    events_in,
)
from trainable.checkpoints import checkpoint

pytestmark = pytest.mark.integration

TRIALS, EPOCHS = 4, 12


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    study = digits_study(tmp_path / "storage", name="mine", budget__trials=TRIALS, budget__epochs=EPOCHS)
    study = study.with_values({"base.model.width": 16, "scheduler.grace_epochs": 3})
    study.write(tmp_path)
    return tmp_path / "study.yaml"


def some_ended_and_some_are_half_way(events: list[Event]) -> bool:
    ended = {event.trial for event in events if isinstance(event, EndEvent)}
    half_way = {trial for trial, epochs in epochs_by_trial(events).items() if len(epochs) >= 2} - ended
    return bool(ended) and bool(half_way)


def runs_of(folder: Path) -> list[object]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder.parent}/mlflow.db")
    return list(client.search_runs([each.experiment_id for each in client.search_experiments()]))


def test_a_driver_killed_in_mid_search_is_resumed_without_loss_or_repetition(study_file: Path) -> None:
    folder, log = study_file.parent / "storage" / "mine", study_file.parent / "log"
    first = Driver("search", study_file, log=log)
    first.wait_for(folder, some_ended_and_some_are_half_way)
    first.send(signal.SIGKILL)
    before = events_in(folder)
    assert not is_locked(folder)
    assert Search(folder).progress.state == "interrupted"
    wait_until_quiet(first, folder)
    ended = {event.trial for event in before if isinstance(event, EndEvent)}
    begun = {event.trial for event in before if isinstance(event, StartEvent)}
    covered = {}
    for trial in begun - ended:
        latest = checkpoint.latest(Path(Home(folder).checkpoints(trial)))
        covered[trial] = latest.epoch if latest is not None else 0

    assert Driver("resume", folder, log=log).wait() == 0, log.read_text()
    events = events_in(folder)
    assert events[: len(before)] == before, "the journal only grows"
    summary = Search(folder).progress
    assert summary.state == "finished"
    assert len(summary.trials) == TRIALS
    assert all(trial.ended for trial in summary.trials)
    assert len({event.search_id for event in events if isinstance(event, SearchEvent)}) == 1
    for trial, epochs in epochs_by_trial(events).items():
        assert epochs == list(range(1, len(epochs) + 1)), f"trial {trial} has each epoch once"
    restarts = {event.trial: event for event in events[len(before) :] if isinstance(event, StartEvent)}
    assert not ended & set(restarts), "what had ended is not trained again"
    for trial, epoch in covered.items():
        assert restarts[trial].epoch == epoch, "no epoch that a checkpoint covers is trained again"
        assert restarts[trial].attempt == 2

    runs = runs_of(folder)
    tags = [run.data.tags.get("tunebook.trial") for run in runs]  # type: ignore[attr-defined]
    assert sorted(tag for tag in tags if tag is not None) == [str(number) for number in range(TRIALS)]
    assert tags.count(None) == 1, "one parent"
    assert {run.info.status for run in runs} <= {"FINISHED", "KILLED"}  # type: ignore[attr-defined]


def wait_until_quiet(driver: Driver, folder: Path) -> None:
    """Ray's processes die with the driver; until then one may still finish a checkpoint."""
    seen: list[str] = []
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        now = sorted(str(path) for path in (folder / "trials").rglob("*"))
        if now == seen and not driver.trial_processes():
            return
        seen = now
        time.sleep(0.5)
    raise AssertionError(f"still at work: {driver.trial_processes()}")


def test_a_signal_stops_cleanly_and_resume_goes_on_even_while_killed_trials_still_die(
    study_file: Path,
) -> None:
    """One search is stopped by Ctrl-C, by SIGTERM and by SIGKILL; after the last it is resumed at once."""
    folder = study_file.parent / "storage" / "mine"
    words: tuple[str | Path, ...] = ("search", study_file, "--set", "concurrent=1")
    for stop in (Driver.press_ctrl_c, lambda driver: driver.send(signal.SIGTERM)):
        log = study_file.parent / f"log-{len(words)}"
        driver = after_two_more_epochs(folder, *words, log=log)
        stop(driver)
        assert driver.wait() == 130, log.read_text()
        assert f"tunebook resume {folder}" in log.read_text()
        assert "Traceback" not in log.read_text()
        assert Search(folder).progress.state == "interrupted"
        words = ("resume", folder)
    log = study_file.parent / "log"
    after_two_more_epochs(folder, *words, log=log).send(signal.SIGKILL)
    assert Driver(*words, log=log).wait() == 0, log.read_text()
    summary = Search(folder).progress
    assert summary.state == "finished"
    assert {trial.state for trial in summary.trials} <= {"finished", "stopped"}
    for epochs in epochs_by_trial(events_in(folder)).values():
        assert epochs == list(range(1, len(epochs) + 1))


def after_two_more_epochs(folder: Path, *words: str | Path, log: Path) -> Driver:
    """A driver that has trained two epochs since it began."""
    before = sum(map(len, epochs_by_trial(events_in(folder)).values()))
    driver = Driver(*words, log=log)
    driver.wait_for(folder, lambda events: sum(map(len, epochs_by_trial(events).values())) >= before + 2)
    return driver


def test_a_trial_whose_process_is_killed_goes_on_from_its_checkpoint(study_file: Path) -> None:
    folder, log = study_file.parent / "storage" / "mine", study_file.parent / "log"
    two = ("--set", "concurrent=1", "--set", "budget.trials=2", "--set", "scheduler.kind=none")
    first = Driver("search", study_file, *two, log=log)
    first.wait_for(
        folder, lambda events: any(len(epochs) >= 3 for epochs in epochs_by_trial(events).values())
    )
    (victim,) = first.trial_processes()
    os.kill(victim, signal.SIGKILL)
    assert first.wait() == 0, log.read_text()
    events = events_in(folder)
    (retry,) = [event for event in events if isinstance(event, RetryEvent)]
    restart = next(event for event in events if isinstance(event, StartEvent) and event.attempt == 2)
    assert restart.trial == retry.trial
    summary = Search(folder).progress
    assert [trial.state for trial in summary.trials] == ["finished"] * 2
    assert epochs_by_trial(events) == {trial: list(range(1, EPOCHS + 1)) for trial in range(2)}
