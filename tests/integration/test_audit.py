"""`tunebook audit` of a real search finds whatever is lost, doubled or changed in one of its parts."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from search.commands.asked import resolved_study
from search.commands.guests import driver
from search.followers.audit import audit
from search.learning.search import Search
from tests.integration.small_searches import digits_study

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a search of two trials of two epochs, with MLflow's database beside it."""
    storage = tmp_path_factory.mktemp("storage")
    study = digits_study(storage, name="mine", budget__trials=2, budget__epochs=2)
    assert driver().search(resolved_study(study.with_values({"scheduler.kind": "none"}))) == "finished"
    return storage / "mine"


def in_mlflow(statement: str) -> Callable[[Path], None]:
    return lambda folder: in_database(folder.parent / "mlflow.db", statement)


def in_mirror(statement: str) -> Callable[[Path], None]:
    return lambda folder: in_database(folder / "optuna.db", statement)


def in_database(file: Path, statement: str) -> None:
    with sqlite3.connect(file) as database:
        assert database.execute(statement).rowcount > 0
    database.close()


def a_pipe_as_mirror(folder: Path) -> None:
    (folder / "optuna.db").unlink()
    os.mkfifo(folder / "optuna.db")


def cut_a_history(folder: Path) -> None:
    (file,) = folder.glob("trials/0001/epoch-0002/history.json")
    first, second = json.loads(file.read_text())
    file.write_text(json.dumps([second, first]))


def change_a_history(folder: Path) -> None:
    (file,) = folder.glob("trials/0001/epoch-0002/history.json")
    first, second = json.loads(file.read_text())
    file.write_text(json.dumps([first | {"val_loss": 9.0}, second]))


def copied(folder: Path, storage: Path) -> Path:
    """Return a search's copy in another storage, with the MLflow database there."""
    shutil.copytree(folder.parent, storage)
    study = storage / folder.name / "study.yaml"
    study.write_text(study.read_text().replace(str(folder.parent), str(storage)))
    return storage / folder.name


SCORE = "key = 'val_accuracy' AND step = 2"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (in_mlflow(f"DELETE FROM metrics WHERE {SCORE}"), "MLflow: trial 0: epoch 2 is missing"),
        (
            in_mlflow(
                "INSERT INTO metrics SELECT key, value, timestamp + 1, run_uuid, step, is_nan "
                f"FROM metrics WHERE {SCORE}"
            ),
            "MLflow: trial 1: epoch 2 is there 2 times",
        ),
        (in_mlflow("UPDATE runs SET status = 'RUNNING'"), "MLflow: trial 1: its status is RUNNING"),
        (
            in_mlflow("DELETE FROM tags WHERE key = 'tunebook.search_id'"),
            "MLflow: the run of trial 0 is missing",
        ),
        (lambda folder: (folder.parent / "mlflow.db").unlink(), "MLflow could not be asked: "),
        (
            in_mirror("DELETE FROM trial_intermediate_values WHERE step = 2"),
            "optuna.db: trial 0: epoch 2 is missing",
        ),
        (in_mirror("DELETE FROM trials"), "optuna.db: trial 1 is missing"),
        (lambda folder: (folder / "optuna.db").unlink(), "optuna.db: no such file"),
        (lambda folder: (folder / "optuna.db").write_text("no database"), "optuna.db cannot be read: "),
        (a_pipe_as_mirror, "optuna.db cannot be read: is a named pipe"),
        (cut_a_history, "checkpoints: trial 1: expected the epochs 1 to 2, got [2, 1]"),
        (change_a_history, "checkpoints: trial 1: epoch 1 has other scores than the journal"),
        (
            lambda folder: shutil.rmtree(folder / "trials/0001/epoch-0002"),
            "checkpoints: trial 1: the newest has 1 of a finished trial's 2 epochs",
        ),
        (lambda folder: shutil.rmtree(folder / "trials"), "checkpoints: trial 0: none of a finished trial"),
    ],
)
def test_each_difference_is_a_line(
    finished: Path, change: Callable[[Path], None], line: str, tmp_path: Path
) -> None:
    folder = copied(finished, tmp_path / "storage")
    change(folder)
    assert line in str(audit(Search(folder)))


def test_a_finished_search_agrees_in_all_its_parts(finished: Path) -> None:
    found = audit(Search(finished))
    assert not found.differences
    assert "2 trials, 4 epochs, each once" in str(found)
