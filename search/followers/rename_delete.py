"""Renames or deletes a search: its folder, its runs in MLflow and its copy in optuna.db."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from search.followers.consumer import error_line
from search.followers.database import quiet_mlflow
from search.followers.mirror import OTHER_MIRROR
from search.followers.run_updates import NOTE, SEARCH_ID
from search.followers.saved_view import AGAIN, TAG
from search.followers.uri import database_file, without_password
from search.record.cursor import hold_lock, read_cursor, write_cursor
from search.record.folder import home_to_write, read_record, read_search
from search.record.home import DRIVER_FILE, MIRROR_FILE, Home
from search.record.storage import driving
from search.study import STUDY_FILE, Study
from trainable.bench import Say, silent
from trainable.errors import UserError

if TYPE_CHECKING:  # MLflow takes seconds to import
    from mlflow import MlflowClient
    from mlflow.entities import Run

RUNS_IN_A_PAGE = 1000


@dataclass(frozen=True)
class SearchExtent:
    """What a search consists of: where it is, how large, and what MLflow has of it."""

    address: str
    trials: int  # without those that repeat others
    bytes: int  # of its folder; of a search in an object store, of what is stored there
    runs: int  # in MLflow, as far as they were sent; none of a folder that was copied from another place
    tracking: str | None  # MLflow's URI without a password; None where the study names none


def extent_of(folder: Path) -> SearchExtent:
    """Return what the search in a folder of this machine consists of. Raises UserError where it is none."""
    study, home, cursor = read_search(folder), home_to_write(folder.absolute()), read_cursor(folder)
    record = read_record(folder)
    uri = study.tracking.uri
    if home.store is not None:
        size = sum(size for size, _ in home.store.files().values())
    else:
        size = sum(each.lstat().st_size for each in folder.rglob("*") if not each.is_dir())
    return SearchExtent(
        address=home.address,
        trials=len(record.trials) - record.repeats,
        bytes=size,
        runs=1 + len(cursor.run_ids) if cursor is not None and _has_runs(study, folder) else 0,
        tracking=None if uri is None else without_password(uri),
    )


def rename_search(folder: Path, name: str, say: Say = silent) -> Path:
    """Give a search another name, in its storage, in MLflow and in optuna.db; return its new folder.

    Raises UserError while a driver is at work or MLflow is being sent to, for a name that no search can have
    or that is taken, where MLflow does not answer, and for a search in an object store. The folder has its
    old name then, and until all else has the new one: what broke off is finished by the same call.
    """
    folder = folder.absolute()
    home, study = home_to_write(folder), read_search(folder)
    if home.store is not None:
        raise UserError(
            f"{home.address}: is in an object store, where nothing can be renamed; `tunebook search "
            "--name NEW` names the next search there"
        )
    renamed, target = study.with_values({"name": name}), folder.with_name(name)
    if target.exists():
        raise UserError(f"{target}: exists already; give another name")
    with _alone(home, say):
        with _named("renamed"):
            _rename_runs(study, folder, name)
        if (mirror := folder / MIRROR_FILE).exists():
            _rename_mirror(mirror, study, name)
        renamed.write(folder)
        os.rename(folder, target)
    return target


def delete_search(folder: Path, say: Say = silent) -> None:
    """Delete a search and its runs in MLflow.

    MLflow itself keeps what is deleted until `mlflow gc`. Raises UserError while a driver is at work or
    MLflow is being sent to, and where MLflow does not answer: nothing is deleted then.
    """
    folder = folder.absolute()
    home, study = home_to_write(folder), read_search(folder)
    with _alone(home, say):
        with _named("deleted"):
            _delete_runs(study, folder)
        if home.store is not None:
            last = (STUDY_FILE, DRIVER_FILE)  # as long as the study is there, the rest can be deleted
            for name in sorted(home.store.names(), key=lambda each: last.index(each) if each in last else -1):
                home.store.remove(name)
        for each in folder.iterdir():
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            elif each.name != STUDY_FILE:
                each.unlink()
        shutil.rmtree(folder)
    if home.store is not None and DRIVER_FILE in home.store.names():
        home.store.remove(DRIVER_FILE)  # the end of the lease was written after all else was gone


@contextmanager
def _alone(home: Home, say: Say) -> Iterator[None]:
    """Keep drivers, and who sends to MLflow, from a search for the block."""
    with driving(home, say):
        sending = hold_lock(home.folder)
        try:
            yield
        finally:
            os.close(sending)


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Turn a failure of MLflow, or of the libraries below it, into one message."""
    try:
        yield
    except (UserError, ModuleNotFoundError):  # also where MLflow is not installed
        raise
    except Exception as error:  # a server and its libraries may fail in any way
        raise UserError(
            f"the search was not {what}: MLflow could not be asked: {error_line(error)}; try again once it "
            "answers"
        ) from error


def _rename_runs(study: Study, folder: Path, name: str) -> None:
    found = _runs(study, folder)
    if found is None:
        return
    client, runs, _ = found
    for run in runs:
        if run.info.run_name not in (study.name, name):  # one that broke off may have renamed it
            continue
        client.update_run(run.info.run_id, name=name)
        if (note := run.data.tags.get(NOTE)) is not None:
            # the whole path alone: /searches/a is no part of /searches/a-2
            old = re.compile(rf"{re.escape(str(folder))}(?![\w-])")
            moved = old.sub(lambda _: str(folder.with_name(name)), note)
            client.set_tag(run.info.run_id, NOTE, moved)
    if (cursor := read_cursor(folder)) is not None:
        # what names the search is sent again, by the next `sync`
        files = {file: digest for file, digest in cursor.files.items() if file != STUDY_FILE}
        write_cursor(folder, cursor.model_copy(update={"files": files}))


def _rename_mirror(file: Path, study: Study, name: str) -> None:
    try:
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("UPDATE studies SET study_name = ? WHERE study_name = ?", (name, study.name))
    except sqlite3.Error as error:
        raise UserError(
            f"the search was not renamed: {file}: {error}; once it can be written, try again; or "
            f"{OTHER_MIRROR}, and then rename the search"
        ) from error


def _delete_runs(study: Study, folder: Path) -> None:
    found = _runs(study, folder)
    if found is None:
        return
    client, runs, experiment = found
    search_id = read_record(folder).search_id
    models = {each.model_id for run in runs for each in (run.outputs.model_outputs if run.outputs else ())}
    for model in sorted(models):
        client.delete_logged_model(model)
    for run in sorted(runs, key=lambda each: each.info.run_name == study.name):  # the search's own run last
        client.delete_run(run.info.run_id)
    tags = client.get_experiment(experiment).tags
    for key in (f"{TAG}{search_id}", f"{TAG}{search_id}{AGAIN}"):
        if key in tags:
            client.delete_experiment_tag(experiment, key)


def _has_runs(study: Study, folder: Path) -> bool:
    """Say whether MLflow's runs are this folder's: those of a copy are the original's, wherever that is."""
    cursor, original = read_cursor(folder), Home.of(study).folder
    is_sent = cursor is not None and cursor.parent_run_id is not None and study.tracking.uri is not None
    return is_sent and original.resolve() == folder.resolve()


def _runs(study: Study, folder: Path) -> tuple[MlflowClient, list[Run], str] | None:
    """Return MLflow's client, a search's runs, and the id of their experiment; None where it has none."""
    search_id, uri = read_record(folder).search_id, str(study.tracking.uri)
    file = database_file(uri)
    if search_id is None or not _has_runs(study, folder) or (file is not None and not file.exists()):
        return None
    quiet_mlflow()
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(study.experiment)
    if experiment is None:
        return None
    runs: list[Run] = []
    token: str | None = None
    while True:
        wanted = f"tags.`{SEARCH_ID}` = '{search_id}'"
        page = client.search_runs(
            [experiment.experiment_id], wanted, max_results=RUNS_IN_A_PAGE, page_token=token
        )
        runs += page
        if (token := page.token) is None:
            return client, runs, str(experiment.experiment_id)
