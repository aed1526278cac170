"""Stores how far a search has been sent to MLflow, and its run ids: `mlflow.json` in the search's folder.

Losing the file loses nothing: everything is sent again, to the runs that are found by their tags.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from pydantic import Field, ValidationError

from search.record.home import CURSOR_FILE, CURSOR_LOCK_FILE
from trainable.errors import UserError
from trainable.files.regular import open_to_write, read_regular, refuse_links, why
from trainable.recipe.base import Spec
from trainable.recipe.yamlfile import write_whole

LARGEST_CURSOR = 2**28  # so many bytes are read: a search of a million trials has fewer


class Cursor(Spec):
    """How far a search folder's journal has been sent, where to, and which runs it became."""

    uri: str  # it has no password: `tunebook fetch` copies the file
    experiment: str
    experiment_id: str | None = None
    parent_run_id: str | None = None
    run_ids: dict[int, str] = Field(default_factory=dict)  # the MLflow run of each trial, by trial number
    events: int = 0  # this number of events from the journal's beginning need not be sent again
    # so long drivers had been at work then; None where an earlier version has written this
    seconds: float | None = None
    # the digests of the parent run's files as they were sent
    files: dict[str, str] = Field(default_factory=dict)
    refused: int = 0
    refusal: str | None = None


def read_cursor(folder: Path) -> Cursor | None:
    """Return a search folder's cursor; None where there is no file, or one that holds no cursor.

    Raises UserError where the file cannot be read.
    """
    file = folder / CURSOR_FILE
    try:
        return Cursor.model_validate_json(read_regular(file, LARGEST_CURSOR))
    except (FileNotFoundError, ValidationError):
        return None
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {why(error)}") from None


def view_page(experiment_id: str, search_id: str | None, *, charts: bool = False) -> str:
    """Return where MLflow shows a search's trials, as a table or as charts, behind a server's address.

    Without a search's id it is the page of the experiment, for a search whose view is not saved.
    """
    page = f"#/experiments/{experiment_id}/runs?workflowType=machine_learning"
    view = f"&viewStateShareKey={search_id}" if search_id is not None else ""
    return f"{page}{view}&compareRunsMode=CHART" if charts else f"{page}{view}"


def run_page(experiment_id: str, run_id: str, artifact: str = "") -> str:
    """Return where MLflow shows a run, or one of its files, behind a server's address."""
    file = f"/artifacts/{artifact}" if artifact else ""
    return f"#/experiments/{experiment_id}/runs/{run_id}{file}?workflowType=machine_learning"


def lacking_seconds(cursor: Cursor | None, seconds: float) -> float | None:
    """Return of how many of the last of a search's seconds MLflow has nothing, all its drivers' together.

    None where an earlier version has sent it.
    """
    sent = 0.0 if cursor is None else cursor.seconds
    return None if sent is None else max(0.0, seconds - sent)


def write_cursor(folder: Path, cursor: Cursor) -> None:
    """Write the cursor whole or not at all."""
    write_whole(folder / CURSOR_FILE, cursor.model_dump_json(indent=2).encode(), mode=0o600)


def hold_lock(folder: Path) -> int:
    """Return the file descriptor of a lock that one process has; the kernel drops it with the process.

    Raises UserError where another process has it, and where the folder has a link in it.
    """
    refuse_links(folder)
    file = folder / CURSOR_LOCK_FILE
    try:
        lock = open_to_write(file, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise UserError(f"{file}: cannot be written to: {why(error)}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UserError("another process is sending this search's events just now") from None
    return lock
