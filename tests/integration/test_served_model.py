"""Tests the stored model of a search as others use it: without tunebook, and behind `mlflow models serve`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from search.followers.following import tracker_of
from search.record.home import Home
from search.study import read_study
from tests.integration.clusters import free_port
from tests.search.results.trained_search import trained_search
from tests.trainable.small_runs import probabilities
from tests.waiting import wait_until
from trainable.data.parts import ArrayPart

pytestmark = pytest.mark.integration

ALONE = """
import json, sys
import mlflow, numpy
model = mlflow.pyfunc.load_model(sys.argv[1])
answers = model.predict(numpy.array(json.load(sys.stdin), numpy.uint8))
assert len(model.predict(numpy.zeros((1, 12, 9, 1), numpy.uint8))) == 1, "images have any size"
assert not {"search", "spaces", "trainable", "ray", "optuna"} & set(sys.modules)
print(json.dumps(answers.to_dict("records")))
"""


class Stored(NamedTuple):
    """The folder of a model, images [20, 8, 8, 1], and its run's labels and probabilities for them."""

    address: str
    images: list[object]
    labels: list[str]
    probabilities: list[list[float]]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Return the folder of a model in MLflow, some images for it, and what its run answers."""
    from mlflow import MlflowClient

    storage = tmp_path_factory.mktemp("searches")
    folder, uri = storage / "one", f"sqlite:///{storage}/mlflow.db"
    folder.mkdir()
    run = trained_search(folder, {"uri": uri})
    backlog = tracker_of(Home(folder), read_study(folder / "study.yaml")).sync()
    assert (backlog.complete, backlog.refusal) == (True, None)
    (model,) = MlflowClient(tracking_uri=uri).search_logged_models(["1"])
    expected = probabilities(run, "validation")[:20]
    part = run.parts["validation"]
    assert isinstance(part, ArrayPart)
    labels = [run.info.classes[number] for number in expected.argmax(1).tolist()]
    images = part.images[:20].transpose(0, 2, 3, 1).tolist()
    return Stored(model.artifact_location, images, labels, expected.tolist())


def test_the_model_is_loaded_where_nothing_of_tunebook_is(stored: Stored, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, stored.address],
        input=json.dumps(stored.images),
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert [each["label"] for each in found] == stored.labels
    assert np.allclose([each["probabilities"] for each in found], stored.probabilities, atol=1e-5)


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
