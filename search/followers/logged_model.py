"""The images of a search as a data set of MLflow's, and the best trial's network as a model there.

Anybody can load, serve and register the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, assert_never

import mlflow
import numpy as np
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, LoggedModelStatus, Metric
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, Schema, TensorSpec
from mlflow.types.schema import Array

from search.followers.mlflow_runs import RunStore
from search.followers.run_updates import SEARCH_ID, TRIAL, milliseconds, written
from search.record.trials import Trial
from trainable.data import DataInfo
from trainable.files.folders import temporary_folder
from trainable.files.store import is_uri
from trainable.recipe.tasks import Classification, Segmentation

if TYPE_CHECKING:  # torch takes seconds to import
    from torch.export import ExportedProgram

CONTEXT = InputTag("mlflow.data.context", "training")  # MLflow shows it beside a data set
PACKAGES = ("mlflow", "numpy", "pandas", "torch")  # what the model needs where it is loaded
LOOK_FOR_VERSIONS = "warn_dependency_requirement_mismatches"  # a function in mlflow.utils.environment
# the tag by which MLflow's pages know a model's versions in the registry; only its server sets it itself
VERSIONS = "mlflow.modelVersions"


def data_input(info: DataInfo) -> DatasetInput:
    """Return the images as an input of a run. The digest is that of `best.yaml` and `tunebook show`."""
    profile = {
        "images": {
            "train": info.train_images,
            "validation": info.validation_images,
            "test": info.test_images,
        },
        "classes": len(info.classes),
        "train_images_of_a_class": {"least": min(info.class_counts), "most": max(info.class_counts)},
    }
    dataset = Dataset(
        name=PurePosixPath(info.path).name,
        digest=info.digest,
        source_type="uri" if is_uri(info.path) else "local",
        source=json.dumps({"uri": info.path}),
        schema=json.dumps({"mlflow_tensorspec": _schema(info)}),
        profile=json.dumps(profile),
    )
    return DatasetInput(dataset, [CONTEXT])


def _schema(info: DataInfo) -> dict[str, str]:
    """Return the form of the images, [N, height, width, channels], and of their labels, [N], or of their
    masks, [N, height, width], in which 255 counts nowhere; these may be of any size."""
    side = -1 if info.task.windowed else info.image_size
    images = TensorSpec(np.dtype("uint8"), (-1, side, side, info.channels))
    match info.task:
        case Classification():
            labels = TensorSpec(np.dtype("int64"), (-1,))
        case Segmentation():
            labels = TensorSpec(np.dtype("int64"), (-1, -1, -1))
        case _:
            assert_never(info.task)
    return {
        "features": json.dumps(Schema([images]).to_dict()),
        "targets": json.dumps(Schema([labels]).to_dict()),
    }


@dataclass(frozen=True)
class Served:
    """How MLflow shows and runs the networks of a task."""

    kind: str  # as MLflow's pages name it
    file: str  # its code, beside this file, answers where the model is loaded
    sources: tuple[str, ...]  # stand in that code for what it imports of ours
    answers: Schema


def served(info: DataInfo) -> Served:
    """Return how networks are served that learnt from such images."""
    match info.task:
        case Classification():
            columns: list[ColSpec | TensorSpec] = [
                ColSpec(DataType.string, "label"),
                ColSpec(DataType.double, "probability"),
                ColSpec(Array(DataType.double), "probabilities"),
            ]
            return Served("image classifier", "served_model.py", (), Schema(columns))
        case Segmentation():
            from trainable.tasks.exporter import body_of
            from trainable.tasks.segmentation.exported import whole_images

            sources = (body_of(whole_images),)
            masks = TensorSpec(np.dtype("uint8"), (-1, -1, -1))
            return Served("image segmentation", "served_masks.py", sources, Schema([masks]))
        case _:
            assert_never(info.task)


class LoggedWinner:
    """The model of a search's best trial in MLflow: stored, found, registered.

    `name` is the search's, `scores` are the network's, as the trial's run has them at its last epoch.
    """

    def __init__(
        self, store: RunStore, search_id: str, name: str, trial: Trial, scores: Mapping[str, float]
    ) -> None:
        self._client, self._experiment_id = store.client, store.experiment_id
        self._run_id, self._search_run_id = store.runs[trial.id], store.runs[None]
        self._name, self._trial, self._scores = name, trial, scores
        self._tags = {SEARCH_ID: search_id, TRIAL: str(trial.id)}

    def stored(self) -> str | None:
        """Return the id of the model that is there already; delete one that was stored by half."""
        wanted = " AND ".join(f"tags.`{key}` = '{value}'" for key, value in self._tags.items())
        whole = None
        for model in self._client.search_logged_models([self._experiment_id], wanted):
            if model.status == LoggedModelStatus.READY:
                whole = str(model.model_id)
            else:
                self._client.delete_logged_model(model.model_id)
        return whole

    def store(self, program: ExportedProgram, info: DataInfo) -> str:
        """Store the model with its files, link it to the trial's run and its last metrics; return its id."""
        params = {path: written(value) for path, value in self._trial.values_by_name.items()}
        created = self._client.create_logged_model(
            self._experiment_id, self._name, self._run_id, self._tags, params, served(info).kind
        )
        model_id = str(created.model_id)
        with temporary_folder() as folder:
            path = folder / "model"
            save_model(path, program, info, self._about(info), Model(run_id=self._run_id, model_id=model_id))
            self._client.log_model_artifacts(model_id, str(path))
        self._link(model_id, data_input(info).dataset)
        self._client.finalize_logged_model(model_id, LoggedModelStatus.READY)
        return model_id

    def register(self, model_id: str, name: str) -> None:
        """Register the model under a name, as its next version, if it is not registered there yet."""
        try:
            self._client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        # its folder, as MLflow would ask its global tracking URI for `models:/ID`
        source = self._client.get_logged_model(model_id).artifact_location
        versions = self._client.search_model_versions(f"name = '{name}'")
        if all(each.source != source for each in versions):
            made = self._client.create_model_version(name, source, self._run_id, model_id=model_id)
            version = json.dumps([{"name": name, "version": made.version}])
            self._client.set_logged_model_tags(model_id, {VERSIONS: version})

    def _about(self, info: DataInfo) -> dict[str, Any]:
        """Return what the code that answers must know of the network."""
        match info.task:
            case Classification():
                return {"classes": list(info.classes)}
            case Segmentation():
                from trainable.tasks.exporters import exporter_of
                from trainable.training.pixels import resolved_for

                return exporter_of(resolved_for(self._trial.whole_recipe, info), info).about()
            case _:
                assert_never(info.task)

    def _link(self, model_id: str, data: Dataset) -> None:
        """Link the model to the trial's run and the search's, and to the images and scores of validation.

        The scores are sent again with the model's id; for the run they are the same points.
        """
        last = self._trial.history[-1]
        at, of = milliseconds(last.time), (model_id, data.name, data.digest, self._run_id)
        points = [Metric(key, value, at, last.epoch, *of) for key, value in self._scores.items()]
        self._client.log_batch(self._run_id, metrics=points)
        for run_id in (self._run_id, self._search_run_id):
            self._client.log_outputs(run_id, [LoggedModelOutput(model_id, last.epoch)])


def save_model(
    path: Path,
    program: ExportedProgram,
    info: DataInfo,
    about: Mapping[str, Any],
    model: Model | None = None,
) -> None:
    """Write a model into a new folder, as MLflow's models are: network, code, signature, example.

    `about` is what the code that answers must know of the network.
    """
    from trainable.bundle.programs import pt2_of
    from trainable.tasks.exporter import embedded

    how = served(info)
    images = TensorSpec(np.dtype("uint8"), (-1, -1, -1, info.channels))
    with temporary_folder() as folder:
        code = Path(__file__).with_name(how.file)
        if how.sources:
            text = embedded(code, *how.sources)
            code = folder / how.file
            code.write_text(text, encoding="utf-8")
        network = folder / "network.pt2"
        network.write_bytes(pt2_of(program))
        with _versions_as_installed():
            mlflow.pyfunc.save_model(
                path,
                mlflow_model=model or Model(),
                python_model=str(code),
                artifacts={"network": str(network)},
                model_config=dict(about),
                signature=ModelSignature(Schema([images]), how.answers),
                input_example=np.zeros((1, info.image_size, info.image_size, info.channels), np.uint8),
                # as package indexes know versions, without a local part such as `+cu132`
                pip_requirements=[f"{name}=={metadata.version(name).partition('+')[0]}" for name in PACKAGES],
            )


@contextmanager
def _versions_as_installed() -> Iterator[None]:
    """Have MLflow store a model without asking whether its packages are installed in these versions.

    They were read from what is installed. MLflow would look through the files of all packages for that, which
    takes 1.7 s of a processor at the end of each search (mlflow/utils/environment.py, 3.17).
    """
    from mlflow.utils import environment

    before = getattr(environment, LOOK_FOR_VERSIONS)
    setattr(environment, LOOK_FOR_VERSIONS, lambda requirements: None)
    try:
        yield
    finally:
        setattr(environment, LOOK_FOR_VERSIONS, before)
