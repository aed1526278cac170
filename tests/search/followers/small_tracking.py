"""What the tests of tracking share: a small search as events, a real database, and what it holds."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.followers.consumer import Backlog
from search.followers.tracker import Tracker
from search.record.cursor import read_cursor
from search.record.home import Home
from search.record.journal import EndEvent, Event, Journal, SearchEvent, StartEvent, TrialEvent
from search.record.trials import Trial
from search.study import Study
from spaces.domains import Value
from tests.search.small_events import NO_FIELDS, epoch, settled
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import to_yaml

if TYPE_CHECKING:
    import pytest
    from mlflow import MlflowClient
    from mlflow.entities import Run


def storage_with_database(factory: pytest.TempPathFactory) -> Path:
    """Make a folder for searches with an empty MLflow database; its tables, which take seconds, once."""
    from mlflow import MlflowClient

    template = factory.getbasetemp() / "empty-mlflow.db"
    if not template.exists():
        MlflowClient(tracking_uri=f"sqlite:///{template}").search_experiments()
    storage = factory.mktemp("the searches")  # a space, since artifacts' addresses are escaped
    shutil.copy(template, storage / "mlflow.db")
    return storage


def run_ids(folder: Path) -> dict[int, str]:
    """Return the MLflow run of each trial, as the cursor has it."""
    cursor = read_cursor(folder)
    return {} if cursor is None else dict(cursor.run_ids)


def client_of(storage: Path) -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{storage}/mlflow.db")


def study_in(storage: Path, uri: str | None = None, experiment: str = "tunebook", **more: Any) -> Study:
    tracking = {"uri": uri or f"sqlite:///{storage}/mlflow.db", "experiment": experiment, **more}
    return Study.from_tree({"data": {"path": "digits"}, "storage": str(storage), "tracking": tracking})


def recipe_text(trial: Trial) -> str:
    return to_yaml(Recipe().with_values(trial.values).tree(), {})


def tracker_of(folder: Path, study: Study | None = None, **more: Any) -> Tracker:
    return Tracker(Home(folder), study or study_in(folder.parent), recipe_text, **more)


def delivered(folder: Path) -> Backlog:
    """Return what a live driver's tracker has left undelivered, once it has sent what the journal holds."""
    tracker = tracker_of(folder)
    tracker.start()
    return tracker.close(60)


def search_event(folder: Path, state: str, reason: str | None = None) -> SearchEvent:
    tree = {"event": "search", "state": state, "search_id": f"id-{folder.name}", "name": folder.name}
    return SearchEvent.model_validate({**tree, "reason": reason, "versions": {"torch": "2.15"}})


def begun(folder: Path) -> list[Event]:
    """Return the events that every journal begins with."""
    return [search_event(folder, "started"), settled(epochs=1000, rungs=(1,))]


def trial(number: int, values: dict[str, Value] | None = None) -> list[Event]:
    queued = TrialEvent(
        trial=number, values=values or {"optimizer.lr": 0.1 + number}, own=number == 0, **NO_FIELDS
    )
    return [queued, StartEvent(trial=number, attempt=1, epoch=0)]


def epochs(number: int, count: int) -> list[Event]:
    return [scored(number, each) for each in range(1, count + 1)]


def scored(number: int, each: int, **changes: Any) -> Event:
    """Return an epoch of a search that compares its trials after the first."""
    return epoch(number, each, rung=1 if each == 1 else None, val_loss=1.25, **changes)


def a_search(folder: Path) -> list[Event]:
    """Return four trials, one of each outcome."""
    return [
        *begun(folder),
        *trial(0),
        *trial(1),
        *epochs(0, 3),
        EndEvent(trial=0, state="finished"),
        scored(1, 1),
        EndEvent(trial=1, state="stopped", reason="rank 2 of 2 at epoch 1"),
        *trial(2),
        scored(2, 1, diverged=True),
        EndEvent(trial=2, state="diverged"),
        *trial(3),
        EndEvent(trial=3, state="failed", reason="RuntimeError: out of memory"),
        search_event(folder, "finished"),
    ]


def write(folder: Path, events: list[Event]) -> list[Event]:
    with Journal(folder) as journal:
        return [journal.append(event) for event in events]


def runs_of(
    client: MlflowClient, folder: Path, experiment: str = "tunebook"
) -> tuple[list[Run], dict[int, Run]]:
    """Return the search's own runs, of which there should be one, and those of its trials."""
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    runs = client.search_runs([found.experiment_id], f"tags.`tunebook.search_id` = 'id-{folder.name}'")
    numbers = [run.data.tags.get("tunebook.trial") for run in runs]
    assert len(set(numbers)) == len(numbers), "no trial has two runs"
    parents = [run for run, number in zip(runs, numbers, strict=True) if number is None]
    return parents, {
        int(number): run for run, number in zip(runs, numbers, strict=True) if number is not None
    }


def text_of(client: MlflowClient, run: Run, name: str, folder: Path) -> str:
    target = folder / f"download-{run.info.run_id}"
    target.mkdir(exist_ok=True)
    return Path(client.download_artifacts(run.info.run_id, name, str(target))).read_text()


def contents(storage: Path, folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return everything that the database holds on one search, row by row."""
    of_runs = "SELECT run_uuid FROM tags WHERE key = 'tunebook.search_id' AND value = ?"
    with sqlite3.connect(storage / "mlflow.db") as database:
        return {
            table: sorted(
                database.execute(
                    f"SELECT * FROM {table} WHERE run_uuid IN ({of_runs})", (f"id-{folder.name}",)
                ).fetchall(),
                key=repr,
            )
            for table in ("runs", "metrics", "params", "tags")
        }
