"""Tests kills, lost databases, refusals and dead servers: everything arrives once, or is reported."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from search.followers.database import deleted_experiment
from search.record.cursor import read_cursor
from search.record.home import CURSOR_FILE, EVENTS_FILE, SYNCED_FILE
from search.record.journal import EndEvent, Journal
from tests.search.followers.small_tracking import (
    a_search,
    begun,
    contents,
    epochs,
    run_ids,
    runs_of,
    search_event,
    study_in,
    text_of,
    tracker_of,
    trial,
    write,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("search.followers.consumer.POLL_SECONDS", 0.05)


@pytest.mark.integration
def test_a_kill_between_making_a_run_and_noting_it_makes_no_second_one(
    client: MlflowClient, storage: Path, folder: Path
) -> None:
    """The process kills itself while it writes the first recipe: the runs exist and no cursor does."""
    write(folder, a_search(folder))
    code = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from search.study import Study
        from search.followers.tracker import Tracker
        from search.record.home import Home

        home = Home(Path({str(folder)!r}))
        study = Study.from_tree({study_in(storage).model_dump(mode="json")!r})
        Tracker(home, study, lambda values: os.kill(os.getpid(), signal.SIGKILL)).sync()
    """)
    killed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert killed.stdout == ""
    assert killed.stderr == ""
    assert read_cursor(folder) is None
    (parent,), children = runs_of(client, folder)
    assert tracker_of(folder).sync().complete
    (same,), again = runs_of(client, folder)
    assert same.info.run_id == parent.info.run_id
    assert {number: run.info.run_id for number, run in again.items()} == {
        number: run.info.run_id for number, run in children.items()
    }


def test_an_epoch_that_another_machine_enters_again_is_there_once(client: MlflowClient, folder: Path) -> None:
    """The last epochs of a machine that was lost were in MLflow, but not in the store's journal."""
    write(folder, [*begun(folder), *trial(0), *epochs(0, 2)])
    assert tracker_of(folder).sync().complete
    for name in (EVENTS_FILE, SYNCED_FILE, CURSOR_FILE):
        (folder / name).unlink()
    write(folder, [*begun(folder), *trial(0), *epochs(0, 3)])
    assert tracker_of(folder).sync().complete
    _, children = runs_of(client, folder)
    history = client.get_metric_history(children[0].info.run_id, "val_loss")
    assert sorted(point.step for point in history) == [1, 2, 3]


def test_items_that_mlflow_never_takes_are_left_out_counted_and_reported(
    client: MlflowClient, folder: Path
) -> None:
    events = [*begun(folder), *trial(0, {"optimizer.lr": 0.1, "what?": 1}), *epochs(0, 1)]
    write(folder, [*events, EndEvent(trial=0, state="failed"), search_event(folder, "finished")])
    backlog = tracker_of(folder).sync()
    assert backlog.complete
    assert backlog.refused == 2, "the param, and the recipe that such a param makes impossible"
    assert "trial 0: recipe.yaml" in str(backlog)
    _, children = runs_of(client, folder)
    assert children[0].info.status == "FAILED"
    assert children[0].data.params == {"optimizer.lr": "0.1"}
    assert children[0].data.metrics["val_loss"] == 1.25
    assert tracker_of(folder).sync() == backlog, "counted once, and still told later"


def test_a_run_that_a_person_deleted_stays_deleted(client: MlflowClient, folder: Path) -> None:
    write(folder, [*begun(folder), *trial(0)])
    tracker_of(folder).sync()
    client.delete_run(run_ids(folder)[0])
    with Journal(folder) as journal:
        for event in [*epochs(0, 1), EndEvent(trial=0, state="failed"), *trial(1)]:
            journal.append(event)
    backlog = tracker_of(folder).sync()
    assert backlog.complete
    assert "deleted" in str(backlog.refusal)
    _, children = runs_of(client, folder)
    assert list(children) == [1]


def test_a_search_that_moves_to_another_database_is_sent_there_whole(
    client: MlflowClient, storage: Path, folder: Path
) -> None:
    from mlflow import MlflowClient

    shutil.copy(storage / "mlflow.db", storage / "other.db")
    write(folder, a_search(folder))
    assert tracker_of(folder).sync().complete
    moved = study_in(storage, f"sqlite:///{storage}/other.db")
    assert tracker_of(folder, moved).sync().complete
    _, here = runs_of(client, folder)
    _, there = runs_of(MlflowClient(tracking_uri=str(moved.tracking.uri)), folder)
    assert len(here) == len(there) == 4
    assert run_ids(folder) == {number: run.info.run_id for number, run in there.items()}


def test_a_search_of_which_the_database_knows_nothing_is_sent_again(
    client: MlflowClient, storage: Path, folder: Path
) -> None:
    write(folder, a_search(folder))
    tracker_of(folder).sync()
    experiment = client.get_experiment_by_name("tunebook")
    assert experiment is not None
    ids = [f"id-{folder.name}"]
    with sqlite3.connect(storage / "mlflow.db") as database:
        database.execute("UPDATE tags SET value = 'lost' WHERE key = 'tunebook.search_id' AND value = ?", ids)
    assert tracker_of(folder).sync().complete
    (parent,), children = runs_of(client, folder)
    assert parent.info.status == "FINISHED"
    assert len(children) == 4


@pytest.mark.integration
def test_two_processes_do_not_send_one_search_at_once(client: MlflowClient, folder: Path) -> None:
    write(folder, a_search(folder))
    code = (
        "import sys; from pathlib import Path; from search.record.cursor import hold_lock; "
        f"hold_lock(Path({str(folder)!r})); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        backlog = tracker_of(folder).sync()
        assert not backlog.complete
        assert "another process is sending" in str(backlog)
        other.kill()
    assert tracker_of(folder).sync().complete


def test_an_unreachable_server_costs_seconds_and_keeps_every_event(folder: Path) -> None:
    events = write(folder, a_search(folder))
    backlog = tracker_of(folder, study_in(folder.parent, "http://127.0.0.1:9")).sync()
    assert backlog.events == len(events)
    assert backlog.error is not None
    assert "127.0.0.1" in backlog.error
    assert run_ids(folder) == {}


def test_a_deleted_experiment_is_an_error_that_says_so(client: MlflowClient, folder: Path) -> None:
    events = write(folder, a_search(folder))
    client.delete_experiment(client.create_experiment("thrown away"))
    backlog = tracker_of(folder, study_in(folder.parent, experiment="thrown away")).sync()
    assert backlog.events == len(events)
    assert "'thrown away' is deleted" in str(backlog)
    study = study_in(folder.parent, experiment="thrown away")
    words = deleted_experiment(study)
    assert words is not None
    assert "restore it (`mlflow experiments restore -x" in words
    assert "or search with another, --experiment OTHER" in words


@pytest.mark.parametrize("uri", ["sqlite:///{}/none.db", "sqlite:///{}/broken.db", "http://127.0.0.1:9"])
def test_a_tracker_that_cannot_say_whether_an_experiment_is_deleted_prevents_no_search(
    tmp_path: Path, uri: str
) -> None:
    (tmp_path / "broken.db").write_bytes(b"no database")
    assert deleted_experiment(study_in(tmp_path, uri.format(tmp_path))) is None
    assert [each.name for each in tmp_path.iterdir()] == ["broken.db"]


def test_an_experiment_that_is_there_or_not_yet_made_is_no_fault(client: MlflowClient, storage: Path) -> None:
    client.create_experiment("there")
    assert deleted_experiment(study_in(storage, experiment="there")) is None
    assert deleted_experiment(study_in(storage, experiment="not yet")) is None


def test_an_artifact_folder_that_cannot_be_written_holds_back_no_numbers(
    client: MlflowClient, storage: Path, folder: Path
) -> None:
    """A file stands where the artifacts' folder should be."""
    (storage / "blocked").write_text("")
    client.create_experiment("blocked", artifact_location=(storage / "blocked").as_uri())
    events = write(folder, a_search(folder))
    study = study_in(storage, experiment="blocked")
    backlog = tracker_of(folder, study).sync()
    assert backlog.events == len(events)
    (parent,), children = runs_of(client, folder, "blocked")
    assert [children[number].info.status for number in range(4)] == [
        *("FINISHED", "FINISHED", "KILLED", "FAILED")
    ]
    assert parent.info.status == "FINISHED"
    (storage / "blocked").unlink()
    assert tracker_of(folder, study).sync().complete
    assert text_of(client, children[2], "recipe.yaml", folder).startswith("version: 2")


def test_a_damaged_cursor_is_no_loss(client: MlflowClient, storage: Path, folder: Path) -> None:
    write(folder, a_search(folder))
    tracker_of(folder).sync()
    before = contents(storage, folder)
    (folder / CURSOR_FILE).write_text('{"uri": "sqlite:')
    assert run_ids(folder) == {}
    assert tracker_of(folder).sync().complete
    assert contents(storage, folder) == before
    assert len(run_ids(folder)) == 4
