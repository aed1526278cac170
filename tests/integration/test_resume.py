"""Drivers that die in mid-search, trials that die in mid-epoch: nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from PIL import Image

from search.commands.asked import resolved_study
from search.commands.guests import driver
from search.learning.search import Search
from search.record.home import Home
from search.record.journal import EndEvent, Event, RetryEvent, SearchEvent, StartEvent
from search.record.lock import is_locked
from search.study import Study
from tests.integration.drivers import Driver, assert_all_agree
from tests.integration.processes import everyone, is_below, is_trial
from tests.integration.small_searches import (
    digits_study,
    epochs_by_trial,
    events_in,
)
from tests.trainable.data_forms import write_csv
from tests.waiting import PATIENCE_SECONDS, wait_until
from trainable.checkpoints import checkpoint
from trainable.data import ArrayPart
from trainable.data.assembly import load
from trainable.recipe.data import Data

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]

TRIALS, EPOCHS = 4, 12
LONG = 30  # so many epochs last through three drivers on any machine


def study_in(folder: Path, **values: object) -> Study:
    study = digits_study(folder / "storage", name="mine", budget__trials=TRIALS, budget__epochs=EPOCHS)
    study = study.with_values({"base.model.width": 16, "scheduler.grace_epochs": 3, **values})
    study.write(folder)
    return study


def write_manifest(folder: Path) -> Path:
    """Write 300 of the digits as files, and a list of them; a row is the name of a file with a space."""
    digits = load(Data(path="digits", in_memory=True)).train
    assert isinstance(digits, ArrayPart)
    rows = []
    for number, (image, label) in enumerate(zip(digits.images[:300], digits.labels.tolist(), strict=False)):
        rows.append({"path": f"scan {number}.png", "label": label})
        Image.fromarray(image[0]).save(folder / str(rows[-1]["path"]))
    return write_csv(folder / "digits.csv", rows)


def some_ended_and_some_are_half_way(events: list[Event]) -> bool:
    ended = {event.trial for event in events if isinstance(event, EndEvent)}
    half_way = {trial for trial, epochs in epochs_by_trial(events).items() if len(epochs) >= 2} - ended
    return bool(ended) and bool(half_way)


def runs_of(folder: Path) -> list[object]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder.parent}/mlflow.db")
    return list(client.search_runs([each.experiment_id for each in client.search_experiments()]))


@pytest.mark.smoke("kill and resume")
def test_a_driver_killed_in_mid_search_is_resumed_without_loss_or_repetition(tmp_path: Path) -> None:
    """Its images are those of a manifest, and two trials train when it dies."""
    study_in(tmp_path, **{"concurrent": 2, "data.path": str(write_manifest(tmp_path))})
    folder = tmp_path / "storage" / "mine"
    first = Driver("search", tmp_path / "study.yaml", log=tmp_path / "log")
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

    assert driver().resume(folder) == "finished"
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
    assert_all_agree(folder)


def wait_until_quiet(killed: Driver, folder: Path) -> None:
    """Ray's processes die with the driver; until then one may still finish a checkpoint."""
    seen: list[list[str]] = []

    def nothing_changes() -> bool:
        seen.append(sorted(str(path) for path in (folder / "trials").rglob("*")))
        return not killed.trial_processes() and seen[-2:-1] == seen[-1:]

    wait_until(nothing_changes, every=0.5)


@pytest.mark.scenario
def test_a_signal_stops_cleanly_and_resume_goes_on_even_while_killed_trials_still_die(tmp_path: Path) -> None:
    """One search is stopped by Ctrl-C, a closed terminal and SIGKILL, and then resumed at once."""
    study_in(tmp_path, **{"budget.trials": 1, "budget.epochs": LONG, "scheduler.kind": "none"})
    folder = tmp_path / "storage" / "mine"
    with (tmp_path / "log-search").open("wb") as log:
        # this is no Driver: being forked, a Driver ends without what Python does at its end
        command = [sys.executable, "-m", "search", "search", str(tmp_path / "study.yaml")]
        typed = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    wait_until(
        lambda: len(epochs_by_trial(events_in(folder)).get(0, [])) >= 2 or typed.poll() is not None,
    )
    os.killpg(typed.pid, signal.SIGINT)  # so a terminal's Ctrl-C arrives: at all that was started
    assert_stopped_cleanly(folder, typed.wait(PATIENCE_SECONDS), tmp_path / "log-search")

    hung_up = after_two_more_epochs(folder, log=tmp_path / "log-hung-up")
    hung_up.send_to_all(signal.SIGHUP)
    assert_stopped_cleanly(folder, hung_up.wait(), hung_up.log, code=129)

    after_two_more_epochs(folder, log=tmp_path / "log").send(signal.SIGKILL)
    assert driver().resume(folder) == "finished"
    assert epochs_by_trial(events_in(folder)) == {0: list(range(1, LONG + 1))}
    assert_all_agree(folder)


@pytest.mark.scenario
def test_a_signal_in_a_long_epoch_saves_what_is_trained_of_it(tmp_path: Path) -> None:
    """An epoch has 700 steps: a trial can be saved twice in it, and saves itself after a minute only."""
    long = {"budget.trials": 1, "budget.epochs": 2, "scheduler.grace_epochs": 1}
    study_in(tmp_path, **long, **{"base.loop.batch_size": 2, "base.model.width": 4})
    folder = tmp_path / "storage" / "mine"
    first = Driver("search", tmp_path / "study.yaml", log=tmp_path / "log")
    first.wait_for(folder, lambda events: bool(epochs_by_trial(events)))
    first.send(signal.SIGTERM)
    assert_stopped_cleanly(folder, first.wait(), first.log, code=143)
    saved = checkpoint.latest(Path(Home(folder).checkpoints(0)))
    assert saved is not None
    assert (saved.epoch, saved.step > 0) == (1, True)
    assert_all_agree(folder)

    assert driver().resume(folder) == "finished"
    events = events_in(folder)
    assert epochs_by_trial(events) == {0: [1, 2]}
    assert not [event for event in events if isinstance(event, RetryEvent)]
    assert_all_agree(folder)


def assert_stopped_cleanly(folder: Path, ended: int, log: Path, code: int = 130) -> None:
    assert ended == code, log.read_text()
    assert f"tunebook resume {folder}" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert Search(folder).progress.state == "interrupted"


def after_two_more_epochs(folder: Path, log: Path) -> Driver:
    """Return a driver that goes on with a search and has trained two epochs."""
    before = len(epochs_by_trial(events_in(folder))[0])
    begun = Driver("resume", folder, log=log)
    begun.wait_for(folder, lambda events: len(epochs_by_trial(events)[0]) >= before + 2)
    return begun


@pytest.mark.scenario
def test_a_trial_whose_process_is_killed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "storage" / "mine"
    study = study_in(tmp_path, **{"budget.trials": 2, "scheduler.kind": "none"})
    killer = threading.Thread(target=kill_a_trial, args=(folder,))
    killer.start()
    assert driver().search(resolved_study(study)) == "finished"
    killer.join()
    events = events_in(folder)
    (retry,) = [event for event in events if isinstance(event, RetryEvent)]
    restart = next(event for event in events if isinstance(event, StartEvent) and event.attempt == 2)
    assert restart.trial == retry.trial
    summary = Search(folder).progress
    assert [trial.state for trial in summary.trials] == ["finished"] * 2
    assert epochs_by_trial(events) == {trial: list(range(1, EPOCHS + 1)) for trial in range(2)}
    assert_all_agree(folder)


def kill_a_trial(folder: Path) -> None:
    """Kill the process of the first trial that has trained three epochs, as soon as Ray has named one."""
    wait_until(
        lambda: any(len(epochs) >= 3 for epochs in epochs_by_trial(events_in(folder)).values()),
    )
    victims: list[int] = []

    def appear() -> bool:
        victims[:] = [pid for pid in filter(is_trial, everyone()) if is_below(pid, os.getpid())]
        return bool(victims)

    wait_until(appear)
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
