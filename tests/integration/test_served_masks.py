"""Tests the stored model of a search for masks as others use it: without tunebook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from search.followers.following import tracker_of
from search.record.home import Home
from search.study import read_study
from tests.search.results.trained_masks import trained_mask_search
from trainable.tasks.segmentation.data.parts import MaskedPart, image_planes
from trainable.tasks.segmentation.predicted import KeptMasks

pytestmark = pytest.mark.integration

ALONE = """
import json, sys
import mlflow, numpy
model = mlflow.pyfunc.load_model(sys.argv[1])
images = json.load(sys.stdin)
answers = [model.predict(numpy.array([each], numpy.uint8))[0].tolist() for each in images]
assert not {"search", "spaces", "trainable", "ray", "optuna"} & set(sys.modules)
print(json.dumps(answers))
"""


def test_masks_of_images_of_any_size_are_those_of_the_run(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    folder, uri = tmp_path / "searches" / "masks", f"sqlite:///{tmp_path}/mlflow.db"
    folder.mkdir(parents=True)
    run = trained_mask_search(folder, {"uri": uri})
    backlog = tracker_of(Home(folder), read_study(folder / "study.yaml")).sync()
    assert (backlog.complete, backlog.refusal) == (True, None)
    client = MlflowClient(tracking_uri=uri)
    (model,) = client.search_logged_models(["1"])
    assert model.model_type == "image segmentation"
    runs = client.search_runs(["1"], "tags.`mlflow.runName` LIKE '%'")
    assert any("val_mean_iou" in each.data.metrics for each in runs)
    kept, part = KeptMasks(), run.parts["validation"]
    run.score("validation", take=kept.take)
    assert isinstance(part, MaskedPart)
    planes = image_planes(part, np.arange(len(part)), run.info.channels)
    images = [np.moveaxis(each[:-1], 0, -1).tolist() for each in planes]
    done = subprocess.run(
        [sys.executable, "-c", ALONE, model.artifact_location],
        input=json.dumps(images),
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for position, mask in enumerate(json.loads(done.stdout)):
        assert np.mean(np.array(mask) == kept.mask(position)) > 0.999
