"""A real MLflow server that starts late, is killed in mid-search and comes back: everything arrives, once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from search.followers.tracker import Tracker
from search.record.home import Home
from search.record.journal import EndEvent, Event, Journal, SearchEvent, StartEvent, TrialEvent
from search.study import Study
from tests.integration.mlflow_server import Server
from tests.search.followers.small_tracking import run_ids
from tests.search.small_events import NO_FIELDS, epoch, settled
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.kill()


def tracker_of(folder: Path, uri: str, experiment: str = "tunebook") -> Tracker:
    folder.mkdir(exist_ok=True)
    (folder / "study.yaml").write_text("seed: 0\n")
    tracking = {"uri": uri, "experiment": experiment}
    study = Study.from_tree({"data": {"path": "digits"}, "storage": str(folder.parent), "tracking": tracking})
    return Tracker(Home(folder), study, lambda trial: f"lr: {trial.values['optimizer.lr']}\n")


def begin(folder: Path, state: str = "started") -> SearchEvent:
    return SearchEvent.model_validate({"state": state, "search_id": folder.name, "name": folder.name})


def trial(number: int, epochs: int) -> list[Event]:
    return [
        TrialEvent(trial=number, values={"optimizer.lr": 0.5}, **NO_FIELDS),
        StartEvent(trial=number, attempt=1, epoch=0),
        *(epoch(number, each, val_loss=1 / each) for each in range(1, epochs + 1)),
        EndEvent(trial=number, state="stopped"),
    ]


def write(journal: Journal, events: list[Event]) -> None:
    for event in events:
        journal.append(event)


def runs_of(client: Any, folder: Path, experiment: str = "tunebook") -> dict[str | None, Any]:
    """The search's runs by their trial's number; None is the search itself. There are no two of one trial."""
    known = client.get_experiment_by_name(experiment)
    if known is None:
        return {}
    runs = client.search_runs([known.experiment_id], f"tags.`tunebook.search_id` = '{folder.name}'")
    found = {run.data.tags.get("tunebook.trial"): run for run in runs}
    assert len(found) == len(runs)
    return found


@pytest.mark.scenario
def test_a_server_that_starts_late_and_dies_in_mid_search_gets_everything_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    monkeypatch.setattr("search.followers.consumer.LONGEST_PAUSE_SECONDS", 1.0)
    folder, local = tmp_path / "late", tmp_path / "local"
    tracker = tracker_of(folder, server.uri)
    with Journal(folder) as journal:
        write(journal, [begin(folder), settled(), *trial(0, 3)])
        tracker.start()
        wait_until(lambda: tracker.backlog().error is not None)
        assert tracker.backlog().events == 8

        server.start()
        write(journal, trial(1, 2))
        wait_until(lambda: tracker.backlog().complete and 1 in run_ids(folder))
        client = MlflowClient(tracking_uri=server.uri)
        before = runs_of(client, folder)
        assert {run.info.status for run in before.values()} == {"RUNNING", "FINISHED"}
        assert (
            "lr: 0.5" in Path(client.download_artifacts(before["1"].info.run_id, "recipe.yaml")).read_text()
        )

        # as with `tunebook ui`: another search writes into the server's database itself; both are read
        direct = tracker_of(local, server.database, "direct")
        with Journal(local) as other:
            write(other, [begin(local), settled(), *trial(0, 2)])
            direct.start()
            write(journal, trial(2, 2))
            wait_until(lambda: len(runs_of(client, local, "direct")) == 2)
            wait_until(lambda: len(runs_of(client, folder)) == 4)
            write(other, trial(1, 2))
            assert direct.close(PATIENCE_SECONDS).complete
        assert len(runs_of(client, local, "direct")) == 3

        wait_until(lambda: tracker.backlog().complete)
        server.kill()
        write(journal, [*trial(3, 2), begin(folder, "finished")])
        started = time.monotonic()
        backlog = tracker.close(20)
        assert time.monotonic() - started < 20, "a dead server is not waited for"
        assert backlog.events == 6
        assert f"{server.port}" in str(backlog.error)

    server.start()
    assert tracker_of(folder, server.uri).sync().complete
    after = runs_of(client, folder)
    assert set(after) == {None, "0", "1", "2", "3"}
    assert all(after[key].info.run_id == run.info.run_id for key, run in before.items())
    assert after[None].info.status == "FINISHED"
    assert {run.info.status for key, run in after.items() if key is not None} == {"FINISHED"}
    for key, epochs in (("0", 3), ("1", 2), ("2", 2), ("3", 2)):
        history = client.get_metric_history(after[key].info.run_id, "val_loss")
        assert sorted((point.step, point.value) for point in history) == [
            (step, 1 / step) for step in range(1, epochs + 1)
        ]
