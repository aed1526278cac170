"""Describes a search's images as MLflow keeps data sets: by name, digest, form and counts."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import numpy as np
from mlflow.entities import Dataset, DatasetInput, InputTag
from mlflow.types import Schema, TensorSpec

from trainable.data import DataInfo
from trainable.files.store import is_uri

CONTEXT = InputTag("mlflow.data.context", "training")  # MLflow shows it beside a data set


def data_input(info: DataInfo) -> DatasetInput:
    """Return the images as an input of a run. The digest is that of `best.yaml` and `tunebook show`."""
    dataset = Dataset(
        name=PurePosixPath(info.path).name,
        digest=info.digest,
        source_type="uri" if is_uri(info.path) else "local",
        source=json.dumps({"uri": info.path}),
        schema=json.dumps({"mlflow_tensorspec": _schema(info)}),
        profile=json.dumps(_profile(info)),
    )
    return DatasetInput(dataset, [CONTEXT])


def _schema(info: DataInfo) -> dict[str, str]:
    """Return the form of the images, [N, height, width, channels], and of their labels, [N], or of their
    masks, [N, height, width], in which 255 counts nowhere; these may be of any size."""
    side = -1 if info.task.windowed else info.image_size
    images = TensorSpec(np.dtype("uint8"), (-1, side, side, info.channels))
    labels = TensorSpec(np.dtype("int64"), (-1,) if info.task.labelled == "image" else (-1, -1, -1))
    return {
        "features": json.dumps(Schema([images]).to_dict()),
        "targets": json.dumps(Schema([labels]).to_dict()),
    }


def _profile(info: DataInfo) -> dict[str, object]:
    images = {"train": info.train_images, "validation": info.validation_images, "test": info.test_images}
    return {
        "images": images,
        "classes": len(info.classes),
        "train_images_of_a_class": {"least": min(info.class_counts), "most": max(info.class_counts)},
    }
