"""Says before a search that a person has deleted the experiment that it names, or named a wrong database."""

from __future__ import annotations

import threading
from contextlib import suppress

from search.followers.database import experiment_in, is_half_made, refuse_foreign
from search.followers.quiet import quiet_mlflow
from search.followers.uri import database_file
from search.study import Study
from trainable.errors import UserError

ANSWER_SECONDS = 10.0  # so long the start of a search waits for what MLflow says of its experiment


def refuse_deleted(name: str, experiment: str, stage: str) -> None:
    """Raise UserError for an experiment that a person has deleted: MLflow takes no runs for it.

    `experiment` is its id, `stage` what MLflow calls its lifecycle stage.
    """
    if stage == "deleted":
        raise UserError(
            f"MLflow's experiment {name!r} is deleted: restore it (`mlflow experiments restore -x "
            f"{experiment}`, with MLFLOW_TRACKING_URI set), or search with another, "
            "--experiment OTHER of `tunebook search` (tracking.experiment)"
        )


def deleted_experiment(study: Study) -> str | None:
    """Return in words that a person has deleted the study's experiment, or that its database is not MLflow's,
    and what to do.

    None: it is there or not made yet, or MLflow does not answer in ANSWER_SECONDS; a search goes on without.
    """
    uri, name = str(study.tracking.uri), study.tracking.experiment
    try:
        if (file := database_file(uri)) is None:
            found = _asked(uri, name)
        elif not file.exists():
            return None  # nothing is created before the search
        else:
            refuse_foreign(file)
            found = None if is_half_made(file) else experiment_in(file, name)
        if found is not None:
            refuse_deleted(name, *found)
    except UserError as error:
        return str(error)
    return None


def _asked(uri: str, name: str) -> tuple[str, str] | None:
    """Ask a server for the id and the stage of an experiment; None where it has none, or does not answer."""
    quiet_mlflow()
    from mlflow import MlflowClient

    found: list[tuple[str, str]] = []

    def ask() -> None:
        with suppress(Exception):  # what is wrong is said when the search is sent
            if (there := MlflowClient(tracking_uri=uri).get_experiment_by_name(name)) is not None:
                found.append((str(there.experiment_id), str(there.lifecycle_stage)))

    asked = threading.Thread(target=ask, name="MLflow's experiment", daemon=True)
    asked.start()
    asked.join(ANSWER_SECONDS)
    return next(iter(found), None)
