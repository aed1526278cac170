"""Tests what a real MLflow database gets of a search beside its events: data set, view, model, params."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from search.record.home import CURSOR_FILE
from search.record.journal import Journal
from tests.full_disk import files_of_at_most
from tests.search.followers.small_tracking import (
    a_search,
    begun,
    runs_of,
    search_event,
    study_in,
    tracker_of,
    trial,
    write,
)
from tests.search.reporting.test_terminal import INFO
from tests.waiting import wait_until
from trainable.data import DataInfo
from trainable.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel


class Brightness(nn.Module):
    """A network that answers 8 x 8 pixels by their mean: the brighter, the more probable are the later
    classes."""

    def forward(self, images: Tensor) -> Tensor:
        return (images.to(torch.float32).mean((1, 2, 3))[:, None] * torch.arange(10.0) / 255.0).softmax(1)


def program() -> ExportedProgram:
    example = (torch.zeros(2, 8, 8, 1, dtype=torch.uint8),)
    return torch.export.export(Brightness(), example, dynamic_shapes=({0: Dim("images")},))


def test_a_model_for_which_the_disk_has_no_room_is_an_error_of_the_system(tmp_path: Path) -> None:
    from search.followers.logged_model import save_model

    made = program()
    with files_of_at_most(1_000), pytest.raises(OSError, match="File too large"):
        save_model(tmp_path / "model", made, INFO, {"classes": list(INFO.classes)})
    assert not list(tmp_path.iterdir())


def test_to_store_a_model_mlflow_does_not_look_through_all_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.utils import environment, requirements_utils

    from search.followers.logged_model import LOOK_FOR_VERSIONS, save_model

    looks: list[str] = []
    monkeypatch.setattr(requirements_utils, "_init_packages_to_modules_map", lambda: looks.append("look"))
    save_model(tmp_path / "model", program(), INFO, {"classes": list(INFO.classes)})
    assert not looks
    getattr(environment, LOOK_FOR_VERSIONS)(["numpy==1.0"])
    assert looks, "others that store models are still told"


def finished(folder: Path, *, register_as: str | None = None, **more: Any) -> None:
    """Send a search whose trial 0 is the best; nothing may be left or refused."""
    if not (folder / "events.jsonl").exists():
        write(folder, a_search(folder))
    study = study_in(folder.parent, register_as=register_as)
    given: dict[str, Any] = {"info": lambda: INFO, "program": program, **more}
    backlog = tracker_of(folder, study, **given).sync()
    assert (backlog.complete, backlog.refusal) == (True, None)


def models_of(client: MlflowClient, folder: Path) -> list[LoggedModel]:
    (parent,), _ = runs_of(client, folder)
    wanted = f"tags.`tunebook.search_id` = 'id-{folder.name}'"
    return list(client.search_logged_models([parent.info.experiment_id], wanted))


@pytest.mark.slow("writes to MLflow")
def test_every_run_names_its_images_by_their_digest_once(client: MlflowClient, folder: Path) -> None:
    finished(folder)
    (folder / CURSOR_FILE).unlink()
    finished(folder)
    (parent,), children = runs_of(client, folder)
    for run in (parent, *children.values()):
        (data,) = run.inputs.dataset_inputs
        assert (data.dataset.name, data.dataset.digest) == ("digits", "0123")
        assert json.loads(str(data.dataset.profile))["images"] == {
            "train": 1257,
            "validation": 5000,
            "test": 270,
        }
        assert "[-1, 8, 8, 1]" in str(data.dataset.schema)


def test_images_of_which_nothing_is_known_keep_nothing_else_back(client: MlflowClient, folder: Path) -> None:
    def unknown() -> DataInfo:
        raise UserError("facts.json: no such file")

    write(folder, a_search(folder))
    backlog = tracker_of(folder, info=unknown).sync()
    assert backlog.complete
    assert backlog.refusal == "the search: the data set: facts.json: no such file"
    (parent,), _ = runs_of(client, folder)
    assert parent.info.status == "FINISHED"


def test_the_study_is_the_searchs_params_without_its_password(client: MlflowClient, folder: Path) -> None:
    write(folder, a_search(folder))
    tracker_of(folder).sync()
    (parent,), _ = runs_of(client, folder)
    params = parent.data.params
    assert (params["data.path"], params["budget.trials"], params["seed"]) == ("digits", "16", "0")
    assert "budget.hours" not in params, "what has no value is left out"


def test_the_drivers_machine_is_measured_only_on_demand(
    client: MlflowClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("search.followers.mlflow_runs.SAMPLE_SECONDS", 0.05)

    def measured(on: bool) -> dict[str, float]:
        tracker = tracker_of(folder, study_in(folder.parent, system_metrics=on))
        with Journal(folder) as journal:
            for event in () if journal.events else [*begun(folder), *trial(0)]:
                journal.append(event)
            tracker.start()
            wait_until(lambda: not on or "system/cpu_utilization_percentage" in numbers())
            assert tracker.close(60).complete
        return {name: value for name, value in numbers().items() if name.startswith("system/")}

    def numbers() -> dict[str, float]:
        if client.get_experiment_by_name("tunebook") is None:
            return {}
        parents, _ = runs_of(client, folder)
        return dict(parents[0].data.metrics) if parents else {}

    assert measured(on=False) == {}
    assert 0.0 <= measured(on=True)["system/cpu_utilization_percentage"] <= 100.0


@pytest.mark.slow("writes to MLflow")
def test_the_view_is_a_tag_of_the_experiment(client: MlflowClient, folder: Path) -> None:
    finished(folder)
    (parent,), _ = runs_of(client, folder)
    tags = client.get_experiment(parent.info.experiment_id).tags
    assert json.loads(tags[f"mlflow.sharedViewState.id-{folder.name}"])["name"] == folder.name


def test_the_best_trials_model_is_linked_to_its_run_its_scores_and_its_images(
    client: MlflowClient, folder: Path
) -> None:
    finished(folder)
    (parent,), children = runs_of(client, folder)
    (model,) = models_of(client, folder)
    assert (model.name, model.source_run_id, str(model.status)) == (
        folder.name,
        children[0].info.run_id,
        "READY",
    )
    assert model.params == {"optimizer.lr": "0.1"}
    scores = {(metric.key, metric.value, metric.dataset_digest) for metric in model.metrics}
    assert scores == {("val_accuracy", 0.5, "0123"), ("val_loss", 1.25, "0123")}
    outputs = [run.outputs.model_outputs[0].model_id for run in (parent, children[0])]
    assert outputs == [model.model_id, model.model_id]
    history = client.get_metric_history(children[0].info.run_id, "val_accuracy")
    assert [point.step for point in history] == [1, 2, 3], "linking adds no point"


@pytest.mark.slow("writes to MLflow")
def test_a_model_that_is_sent_again_is_the_same_and_half_of_one_is_replaced(
    client: MlflowClient, folder: Path
) -> None:
    finished(folder, register_as="again")
    (before,) = models_of(client, folder)
    (folder / CURSOR_FILE).unlink()
    finished(folder, register_as="again")
    (same,) = models_of(client, folder)
    assert same.model_id == before.model_id
    assert len(client.search_model_versions("name = 'again'")) == 1

    tags = {"tunebook.search_id": f"id-{folder.name}", "tunebook.trial": "0"}
    client.delete_logged_model(same.model_id)
    half = client.create_logged_model(same.experiment_id, folder.name, tags=tags)
    (folder / CURSOR_FILE).unlink()
    finished(folder)
    (other,) = models_of(client, folder)
    assert other.model_id not in (half.model_id, same.model_id)


@pytest.mark.slow("writes to MLflow")
def test_a_model_is_registered_under_a_name_if_asked(client: MlflowClient, folder: Path) -> None:
    finished(folder)
    assert client.search_model_versions(f"name = '{folder.name}'") == []
    finished(folder, register_as=folder.name)
    (model,) = models_of(client, folder)
    (version,) = client.search_model_versions(f"name = '{folder.name}'")
    assert (version.version, version.source) == (1, model.artifact_location)
    assert json.loads(model.tags["mlflow.modelVersions"]) == [{"name": folder.name, "version": 1}]


def test_the_stored_model_answers_with_labels(
    client: MlflowClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    classes = tuple(f"class {number}" for number in range(10))
    finished(folder, info=lambda: replace(INFO, classes=classes))
    (model,) = models_of(client, folder)
    loaded = mlflow.pyfunc.load_model(model.artifact_location)
    images = np.zeros((3, 8, 8, 1), np.uint8)
    images[2] = 255
    answers = loaded.predict(images)
    assert answers["label"].tolist() == ["class 0", "class 0", "class 9"]
    expected = Brightness()(torch.from_numpy(images))
    assert np.allclose(np.array(answers["probabilities"].tolist()), expected)
    assert answers["probability"].tolist() == pytest.approx(expected.max(1).values.tolist())
    assert loaded.metadata.signature.inputs.inputs[0].shape == (-1, -1, -1, 1)


def test_a_model_that_cannot_be_made_is_reported_and_keeps_nothing_back(
    client: MlflowClient, folder: Path
) -> None:
    def fail() -> ExportedProgram:
        raise ValueError("no checkpoint")

    write(folder, a_search(folder))
    backlog = tracker_of(folder, info=lambda: INFO, program=fail).sync()
    assert (backlog.complete, backlog.refusal) == (True, "trial 0: model: no checkpoint")
    assert models_of(client, folder) == []


def test_a_server_that_knows_neither_data_sets_nor_models_gets_all_the_rest(
    client: MlflowClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient as Client
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import ENDPOINT_NOT_FOUND

    def unknown(*arguments: Any, **more: Any) -> None:
        raise MlflowException("no such page", ENDPOINT_NOT_FOUND)

    for name in ("log_inputs", "search_logged_models"):
        monkeypatch.setattr(Client, name, unknown)
    write(folder, a_search(folder))
    backlog = tracker_of(folder, info=lambda: INFO, program=program).sync()
    assert backlog.complete
    assert (backlog.refused, backlog.refusal) == (
        6,
        "trial 0: model: the server does not know such a request (404): its MLflow is too old",
    )
    (parent,), children = runs_of(client, folder)
    assert (parent.info.status, len(children)) == ("FINISHED", 4)


def test_a_search_that_did_not_finish_has_no_model_yet(client: MlflowClient, folder: Path) -> None:
    write(folder, [*a_search(folder)[:-1], search_event(folder, "interrupted")])
    tracker_of(folder, info=lambda: INFO, program=program).sync()
    assert models_of(client, folder) == []
