"""Tests what the runs in a real MLflow database hold: during a search, after it, and when it is resumed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from search.followers.audit import _run_difference
from search.record.cursor import read_cursor
from search.record.home import CURSOR_FILE, EVENTS_FILE
from search.record.journal import EndEvent, EpochEvent, Journal, StartEvent
from search.record.trials import Trial
from spaces.domains import Value
from tests.search.followers.small_tracking import (
    a_search,
    begun,
    contents,
    delivered,
    epochs,
    recipe_text,
    run_ids,
    runs_of,
    scored,
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


@pytest.mark.slow("writes to MLflow")
def test_a_search_is_a_parent_run_with_a_child_for_each_trial(client: MlflowClient, folder: Path) -> None:
    written = write(folder, a_search(folder))
    assert tracker_of(folder).sync().complete
    (parent,), children = runs_of(client, folder)
    assert sorted(children) == [0, 1, 2, 3]
    assert {run.data.tags["mlflow.parentRunId"] for run in children.values()} == {parent.info.run_id}
    assert parent.info.run_name == folder.name
    assert (
        children[3].info.run_name
        == "3: resnet_small (depth 8, width 16), from scratch, SGD at 0.1 a batch of 256, cosine"
    )
    assert parent.info.start_time == round(written[0].time * 1000)
    assert children[0].info.end_time == round(written[9].time * 1000)
    assert run_ids(folder) == {number: run.info.run_id for number, run in children.items()}


def test_status_and_tags_tell_how_each_trial_ended(client: MlflowClient, folder: Path) -> None:
    write(folder, a_search(folder))
    tracker_of(folder).sync()
    (parent,), children = runs_of(client, folder)
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["tunebook.state"] == "finished"
    assert parent.data.tags["tunebook.version.torch"] == "2.15"
    assert "16 trials of up to 20 epochs on digits" in parent.data.tags["mlflow.note.content"]
    assert [children[number].info.status for number in range(4)] == [
        *("FINISHED", "FINISHED", "KILLED", "FAILED")
    ]
    outcomes = [children[number].data.tags["tunebook.outcome"] for number in range(4)]
    assert outcomes == ["finished", "stopped", "diverged", "failed"]
    assert children[1].data.tags["tunebook.rung"] == "1"
    assert children[3].data.tags["tunebook.reason"] == "RuntimeError: out of memory"
    assert children[0].data.params == {"optimizer.lr": "0.1"}


def test_every_epoch_is_one_point_with_its_step_and_time(client: MlflowClient, folder: Path) -> None:
    written = write(folder, a_search(folder))
    tracker_of(folder).sync()
    _, children = runs_of(client, folder)
    history = client.get_metric_history(children[0].info.run_id, "val_loss")
    expected = [
        (event.epoch, 1.25, round(event.time * 1000)) for event in written if isinstance(event, EpochEvent)
    ]
    assert sorted((point.step, point.value, point.timestamp) for point in history) == expected[:3]


def test_the_search_itself_is_summed_up(client: MlflowClient, folder: Path) -> None:
    write(folder, a_search(folder))
    tracker_of(folder).sync()
    (parent,), _ = runs_of(client, folder)
    numbers = parent.data.metrics
    assert numbers["best_val_accuracy"] == 0.5
    assert (numbers["epochs_trained"], numbers["epochs_if_unpruned"]) == (5, 40)
    assert (numbers["trials"], numbers["trials_stopped"], numbers["trials_diverged"]) == (4, 1, 1)


def test_recipes_and_the_searchs_files_are_stored_and_follow_their_changes(
    client: MlflowClient, folder: Path
) -> None:
    write(folder, a_search(folder))
    study_in(folder.parent).write(folder)
    tracker_of(folder).sync()
    (parent,), children = runs_of(client, folder)
    assert text_of(client, children[1], "recipe.yaml", folder) == recipe_text(
        Trial(id=1, values={"optimizer.lr": 1.1})
    )
    assert text_of(client, parent, "study.yaml", folder) == study_in(folder.parent).yaml()
    (folder / "best.yaml").write_text("version: 1\n")
    assert tracker_of(folder).sync().complete
    assert text_of(client, parent, "best.yaml", folder) == "version: 1\n"
    assert parent.info.artifact_uri.startswith(f"{(folder.parent / 'mlflow-artifacts').as_uri()}/")


def test_sending_everything_again_changes_nothing(client: MlflowClient, storage: Path, folder: Path) -> None:
    write(folder, a_search(folder))
    tracker_of(folder).sync()
    before = contents(storage, folder)
    assert len(before["runs"]) == 5
    for _ in range(2):
        (folder / CURSOR_FILE).unlink()
        assert tracker_of(folder).sync().complete
        assert contents(storage, folder) == before


def test_resume_goes_on_with_the_same_runs(client: MlflowClient, storage: Path, folder: Path) -> None:
    first = [*begun(folder), *trial(0), *trial(1), *epochs(0, 1), *epochs(1, 1)]
    write(
        folder, [*first, EndEvent(trial=1, state="stopped"), search_event(folder, "interrupted", "a signal")]
    )
    assert tracker_of(folder).sync().complete
    (parent,), children = runs_of(client, folder)
    assert (parent.info.status, parent.data.tags["tunebook.state"]) == ("KILLED", "interrupted")
    assert (children[0].info.status, children[0].data.tags["tunebook.state"]) == ("KILLED", "interrupted")
    assert children[1].data.tags["tunebook.state"] == "stopped early"

    with Journal(folder) as journal:
        journal.append(search_event(folder, "resumed"))
        journal.append(StartEvent(trial=0, attempt=2, epoch=1))
        assert delivered(folder).complete
        (parent,), children = runs_of(client, folder)
        assert (parent.info.status, parent.data.tags["tunebook.state"]) == ("RUNNING", "running")
        assert (children[0].info.status, children[0].data.tags["tunebook.state"]) == ("RUNNING", "running")
        assert children[0].data.tags["tunebook.attempts"] == "2"
        assert children[1].info.status == "FINISHED"

        journal.append(scored(0, 2))
        journal.append(EndEvent(trial=0, state="finished"))
        journal.append(search_event(folder, "finished"))
        assert delivered(folder).complete
    (last,), ended = runs_of(client, folder)
    assert (last.info.run_id, last.info.status) == (parent.info.run_id, "FINISHED")
    assert (ended[0].info.run_id, ended[0].info.status) == (children[0].info.run_id, "FINISHED")
    assert len(client.get_metric_history(ended[0].info.run_id, "val_accuracy")) == 2


def test_sync_closes_what_a_killed_driver_left_open_and_leaves_a_live_one_alone(
    client: MlflowClient, folder: Path
) -> None:
    with Journal(folder) as journal:
        for event in [*begun(folder), *trial(0), *epochs(0, 1)]:
            journal.append(event)
        assert delivered(folder).complete
        (parent,), children = runs_of(client, folder)
        assert (parent.info.status, children[0].info.status) == ("RUNNING", "RUNNING")
    assert tracker_of(folder).sync().complete
    (parent,), children = runs_of(client, folder)
    assert (parent.info.status, children[0].info.status) == ("KILLED", "KILLED")
    assert children[0].data.tags["tunebook.state"] == "interrupted"


@pytest.mark.slow("writes to MLflow")
def test_what_an_earlier_version_has_sent_is_no_difference_and_is_sent_again(
    client: MlflowClient, folder: Path
) -> None:
    """It called a trial that was stopped early killed, and an optimizer of timm's timm."""
    drawn: dict[str, Value] = {"optimizer.kind": "timm", "optimizer.name": "muon"}
    stopped = EndEvent(trial=0, state="stopped", reason="rank 2 of 2 at epoch 1")
    write(folder, [*begun(folder), *trial(0, drawn), scored(0, 1), stopped, search_event(folder, "finished")])
    ids = {"tunebook.search_id": f"id-{folder.name}"}
    known = client.get_experiment_by_name("tunebook")
    experiment = client.create_experiment("tunebook") if known is None else known.experiment_id
    parent = client.create_run(experiment, tags=ids).info.run_id
    child = {**ids, "tunebook.trial": "0", "mlflow.parentRunId": parent}
    run_id = client.create_run(experiment, tags=child).info.run_id
    client.log_param(run_id, "optimizer.kind", "timm")
    client.set_terminated(run_id, "KILLED")
    ended = Trial(id=0, values=drawn, end="stopped")
    assert not any("status" in line for line in _run_difference(client, client.get_run(run_id), ended, "x"))

    backlog = tracker_of(folder).sync()
    assert (backlog.complete, backlog.refusal) == (True, None)
    (_,), children = runs_of(client, folder)
    assert (children[0].info.run_id, children[0].info.status) == (run_id, "FINISHED")
    assert children[0].data.params == {"optimizer.kind": "timm", "optimizer.name": "muon"}


@pytest.mark.slow("writes to MLflow")
def test_the_params_of_a_run_call_an_optimizer_of_timms_by_its_own_name(
    client: MlflowClient, folder: Path
) -> None:
    write(folder, [*begun(folder), *trial(0, {"optimizer.kind": "timm", "optimizer.name": "muon"})])
    tracker_of(folder).sync()
    _, children = runs_of(client, folder)
    assert children[0].data.params["optimizer.kind"] == "muon"


def test_a_tracker_in_the_background_sends_while_the_search_goes_on(
    client: MlflowClient, folder: Path
) -> None:
    tracker = tracker_of(folder)
    events = a_search(folder)
    with Journal(folder) as journal:
        for event in events[:4]:
            journal.append(event)
        tracker.start()
        for event in events[4:]:
            journal.append(event)
        backlog = tracker.close(60)
    assert backlog.complete, backlog
    (parent,), children = runs_of(client, folder)
    assert parent.info.status == "FINISHED"
    assert len(children) == 4
    cursor = read_cursor(folder)
    assert cursor is not None
    assert (cursor.events, cursor.parent_run_id) == (len(events), parent.info.run_id)


def test_thousands_of_points_fit_into_batches(client: MlflowClient, folder: Path) -> None:
    values: dict[str, Value] = {f"augmentation.field_{number}": number for number in range(250)}
    write(folder, [*begun(folder), *trial(0, values), *epochs(0, 200)])
    tracker_of(folder).sync()
    _, children = runs_of(client, folder)
    assert len(children[0].data.params) == 250
    assert len(client.get_metric_history(children[0].info.run_id, "val_loss")) == 200


def test_a_person_who_uses_mlflow_too_finds_their_settings_untouched(
    client: MlflowClient, folder: Path
) -> None:
    import mlflow

    before = (mlflow.get_tracking_uri(), mlflow.active_run())
    write(folder, a_search(folder))
    tracker_of(folder).sync()
    assert (mlflow.get_tracking_uri(), mlflow.active_run()) == before
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_without_a_journal_there_is_nothing_to_send(folder: Path) -> None:
    assert not (folder / EVENTS_FILE).exists()
    assert tracker_of(folder).sync().complete
