"""Tests what becomes of a search's runs in a real MLflow database when it is renamed or deleted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from search.followers.rename_delete import delete_search, extent_of, rename_search
from search.followers.run_updates import NOTE
from search.record.folder import read_search
from search.record.home import MIRROR_FILE
from search.record.stored_search import StoredSearch
from tests.search.followers.small_final import a_search_with_a_final
from tests.search.followers.small_tracking import a_search, runs_of, study_in, tracker_of, write
from trainable.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient


def interrupted(*given: object, **options: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def sent(folder: Path) -> Path:
    write(folder, a_search(folder))
    study_in(folder.parent).resolved(folder.name).write(folder)
    assert tracker_of(folder).sync().complete
    return folder


@pytest.mark.slow("writes to MLflow")
def test_the_run_of_a_renamed_search_has_its_new_name(client: MlflowClient, sent: Path) -> None:
    rename_search(sent, f"new-{sent.name}")
    (parent,), children = runs_of(client, sent)  # they keep the search's id, which has its first name
    assert parent.info.run_name == f"new-{sent.name}"
    assert sorted(run.info.run_name.partition(":")[0] for run in children.values()) == ["0", "1", "2", "3"]


@pytest.mark.slow("writes to MLflow")
def test_the_note_of_a_renamed_search_has_its_new_path(client: MlflowClient, sent: Path) -> None:
    (parent,), _ = runs_of(client, sent)
    client.set_tag(parent.info.run_id, NOTE, f"`tunebook show {sent}`, beside {sent}-2")
    rename_search(sent, f"new-{sent.name}")
    (parent,), _ = runs_of(client, sent)
    now = sent.with_name(f"new-{sent.name}")
    assert parent.data.tags[NOTE] == f"`tunebook show {now}`, beside {sent}-2"


@pytest.mark.slow("writes to MLflow")
@pytest.mark.parametrize(
    "step", ["mlflow.MlflowClient.set_tag", "search.study.study.write_whole", "os.rename"]
)
def test_a_rename_that_breaks_off_is_finished_by_the_same_call(
    client: MlflowClient, sent: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    name, note = f"new-{sent.name}", f"`tunebook show {sent}`"
    (parent,), _ = runs_of(client, sent)
    client.set_tag(parent.info.run_id, NOTE, note)
    with monkeypatch.context() as broken:
        broken.setattr(step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            rename_search(sent, name)
    assert sent.exists()
    now = rename_search(sent, name)
    (parent,), _ = runs_of(client, sent)
    assert (now, parent.info.run_name) == (sent.with_name(name), name)
    assert parent.data.tags[NOTE] == f"`tunebook show {now}`"
    assert (read_search(now).name, sent.exists()) == (name, False)


@pytest.mark.slow("writes to MLflow")
def test_a_database_of_mlflow_that_is_none_is_said_in_a_line(sent: Path) -> None:
    broken = sent / "broken.db"
    broken.write_text("no database")
    study_in(sent.parent, f"sqlite:///{broken}").resolved(sent.name).write(sent)
    with pytest.raises(
        UserError, match=r"was not renamed: MLflow could not be asked: .*not a database"
    ) as said:
        rename_search(sent, f"new-{sent.name}")
    assert "\n" not in str(said.value)


@pytest.mark.slow("writes to MLflow")
def test_a_copy_for_optuna_that_cannot_be_renamed_is_said_in_a_line(sent: Path) -> None:
    (sent / MIRROR_FILE).write_text("no database")
    with pytest.raises(
        UserError, match=r"optuna\.db: file is not a database; .* delete it: `tunebook sync DIR`"
    ):
        rename_search(sent, f"new-{sent.name}")
    assert sent.exists()


@pytest.mark.slow("writes to MLflow")
def test_the_runs_of_a_deleted_search_are_deleted_and_no_others(
    client: MlflowClient, sent: Path, storage: Path
) -> None:
    other = storage / f"other-{sent.name}"
    other.mkdir()
    write(other, a_search(other))
    assert tracker_of(other).sync().complete
    assert extent_of(sent).runs == 5
    experiment = client.get_experiment_by_name("tunebook")
    assert experiment is not None
    before = len(client.search_runs([experiment.experiment_id]))
    delete_search(sent)
    assert not sent.exists()
    assert len(client.search_runs([experiment.experiment_id])) == before - 5
    assert len(runs_of(client, other)[1]) == 4


def test_runs_of_finalists_are_no_trials_of_a_search(tmp_path: Path) -> None:
    write(tmp_path, a_search_with_a_final(tmp_path))
    study_in(tmp_path.parent).resolved(tmp_path.name).write(tmp_path)
    progress = StoredSearch(tmp_path).progress
    assert progress.repeats
    assert extent_of(tmp_path).trials == len(progress.trials)


@pytest.mark.slow("writes to MLflow")
def test_the_runs_of_a_search_outlive_a_copy_of_its_folder(client: MlflowClient, sent: Path) -> None:
    copy = sent.with_name(f"copy-of-{sent.name}")
    shutil.copytree(sent, copy)
    assert extent_of(copy).runs == 0
    delete_search(copy)
    assert len(runs_of(client, sent)[1]) == 4
