"""Tests the stored model of a search as others use it: without tunebook, and behind `mlflow models serve`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from search.followers.following import tracker_of
from search.record.home import Home
from search.study import read_study
from tests.integration.clusters import free_port
from tests.search.results.trained_masks import trained_mask_search
from tests.search.results.trained_search import trained_search
from tests.trainable.small_runs import probabilities
from tests.waiting import wait_until
from trainable.data.parts import ArrayPart
from trainable.tasks.segmentation.data.parts import MaskedPart, image_planes
from trainable.tasks.segmentation.predicted import KeptMasks
from trainable.training.run import Run

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel

pytestmark = pytest.mark.integration

ALONE = """
import json, sys
import mlflow, numpy
model = mlflow.pyfunc.load_model(sys.argv[1])
answers = [model.predict(numpy.array([each], numpy.uint8)) for each in json.load(sys.stdin)]
assert not {"search", "spaces", "trainable", "ray", "optuna"} & set(sys.modules)
print(json.dumps([each[0].tolist() if masks else each.to_dict("records")[0] for each in answers]))
"""


def alone(address: str, images: list[Any], folder: Path, *, masks: bool = False) -> list[Any]:
    """What a stored model answers to images, one after the other, where nothing of tunebook is."""
    done = subprocess.run(
        [sys.executable, "-c", f"masks = {masks}{ALONE}", address],
        input=json.dumps(images),
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def sent(
    folder: Path, searched: Callable[[Path, dict[str, str]], Run]
) -> tuple[MlflowClient, LoggedModel, Run]:
    """Make a search of one trial, and send it with its model to a database beside its folder."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder.parent}/mlflow.db")
    run = searched(folder, {"uri": client.tracking_uri})
    backlog = tracker_of(Home(folder), read_study(folder / "study.yaml")).sync()
    assert (backlog.complete, backlog.refusal) == (True, None)
    (model,) = client.search_logged_models(["1"])
    return client, model, run


class Stored(NamedTuple):
    """The folder of a model, images [20, 8, 8, 1], and its run's labels and probabilities for them."""

    address: str
    images: list[Any]
    labels: list[str]
    probabilities: list[list[float]]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Return the folder of a model in MLflow, some images for it, and what its run answers."""
    folder = tmp_path_factory.mktemp("searches") / "one"
    folder.mkdir()
    _, model, run = sent(folder, trained_search)
    expected = probabilities(run, "validation")[:20]
    part = run.parts["validation"]
    assert isinstance(part, ArrayPart)
    labels = [run.info.classes[number] for number in expected.argmax(1).tolist()]
    images = part.images[:20].transpose(0, 2, 3, 1).tolist()
    return Stored(model.artifact_location, images, labels, expected.tolist())


def test_the_model_is_loaded_where_nothing_of_tunebook_is(stored: Stored, tmp_path: Path) -> None:
    other_size = np.zeros((12, 9, 1), np.uint8).tolist()
    *found, _ = alone(stored.address, [*stored.images, other_size], tmp_path)
    assert [each["label"] for each in found] == stored.labels
    assert np.allclose([each["probabilities"] for each in found], stored.probabilities, atol=1e-5)


def test_masks_of_images_of_any_size_are_those_of_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "searches" / "masks"
    folder.mkdir(parents=True)
    client, model, run = sent(folder, trained_mask_search)
    assert model.model_type == "image segmentation"
    runs = client.search_runs(["1"], "tags.`mlflow.runName` LIKE '%'")
    assert any("val_mean_iou" in each.data.metrics for each in runs)
    kept, part = KeptMasks(), run.parts["validation"]
    run.score("validation", take=kept.take)
    assert isinstance(part, MaskedPart)
    planes = image_planes(part, np.arange(len(part)), run.info.channels)
    images = [np.moveaxis(each[:-1], 0, -1).tolist() for each in planes]
    for position, mask in enumerate(alone(model.artifact_location, images, tmp_path, masks=True)):
        assert np.mean(np.array(mask) == kept.mask(position)) > 0.999


def test_a_served_model_answers_over_http(stored: Stored, tmp_path: Path) -> None:
    port = free_port()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # it calls uvicorn by its name
    command = f"-m mlflow models serve --env-manager local --host 127.0.0.1 --port {port} -m".split()
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, *command, stored.address],
            env={**os.environ, "PATH": path},
            stdout=log,
            stderr=log,
            cwd=tmp_path,
            start_new_session=True,
        )

    def answers() -> bool:
        assert server.poll() is None, (tmp_path / "log").read_text()
        return status_of(f"http://127.0.0.1:{port}/ping") == 200

    try:
        wait_until(answers)
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations",
            json.dumps({"inputs": stored.images}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            found = json.load(answer)["predictions"]
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    assert [each["label"] for each in found] == stored.labels
    assert all(len(each["probabilities"]) == 10 for each in found)


def status_of(address: str) -> int | None:
    try:
        with urllib.request.urlopen(address, timeout=1) as answer:
            return int(answer.status)
    except (OSError, urllib.error.URLError):
        return None
