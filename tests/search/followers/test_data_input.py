"""Tests how images with masks are described as a data set of MLflow."""

from __future__ import annotations

import json
from dataclasses import replace

from search.followers.logged_model import data_input
from tests.search.reporting.test_terminal import INFO


def test_masks_are_of_the_images_sizes_which_may_be_any() -> None:
    count = len(INFO.classes)
    masked = replace(INFO, task_kind="segmentation", mask_values=tuple(range(count)))
    schema = json.loads(str(data_input(masked).dataset.schema))["mlflow_tensorspec"]
    shapes = {
        name: tuple(each["tensor-spec"]["shape"])
        for name, text in schema.items()
        for each in json.loads(text)
    }
    assert shapes == {"features": (-1, -1, -1, INFO.channels), "targets": (-1, -1, -1)}
