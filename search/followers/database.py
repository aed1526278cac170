"""MLflow's SQLite file: made whole or not at all, and what is wrong with it, said before a search.

MLflow makes its tables by some fifty migrations, each for itself. Where one cannot be written, MLflow fails
on that file for ever: it begins again, and finds tables that are there already.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Literal

from search.followers.uri import database_file, refuse_link
from search.study import Study
from trainable.errors import UserError
from trainable.files.folders import temporary_folder

ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # If the client repeats a request, it may create a run twice; we look for the run before we repeat one.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}
# A request to a server that hangs is abandoned after so long; MLflow's own default is 120 s. A person's
# MLFLOW_HTTP_REQUEST_TIMEOUT overrides it.
REQUEST_SECONDS = "20"
ANSWER_SECONDS = 10.0  # so long the start of a search waits for what MLflow says of its experiment
PREFIX = ".tunebook-mlflow-"
# Endings of the files in which SQLite keeps what is not in the database yet
SIDE_FILES = ("-journal", "-wal", "-shm")
# MLflow itself, such as a server that a person has just started, writes more often while it makes a file
MAKING_SECONDS = 10.0
PAUSE_SECONDS = 0.25
OTHER_DATABASE = (
    "put an earlier copy in its place, or move it away: `tunebook sync DIR` sends each search into a new one"
)
ALEMBIC = "alembic_version"
FROM_MIGRATIONS = frozenset({"workspaces"})  # tables in which MLflow's migrations themselves put a row


def quiet_mlflow() -> None:
    """Import MLflow with the variables that it reads then, and have it log nothing."""
    os.environ.update(ENVIRONMENT)
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", REQUEST_SECONDS)
    import mlflow  # noqa: F401  # it sets its loggers' levels

    for name in ("mlflow", "alembic"):
        # they log every table that they create, and errors that they raise as well
        logging.getLogger(name).setLevel(logging.CRITICAL)


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
    uri, name = str(study.tracking.uri), study.experiment
    try:
        if (file := database_file(uri)) is None:
            experiment = _asked(uri, name)
        elif not file.exists():
            return None  # nothing is created before the search
        else:
            refuse_foreign(file)
            experiment = None if is_half_made(file) else experiment_in(file, name)
        if experiment is not None:
            refuse_deleted(name, *experiment)
    except UserError as error:
        return str(error)
    return None


def _asked(uri: str, name: str) -> tuple[str, str] | None:
    """Ask a server for the id and the stage of an experiment; None where it has none, or does not answer."""
    quiet_mlflow()
    from mlflow import MlflowClient

    answers: list[tuple[str, str]] = []

    def ask() -> None:
        with suppress(Exception):  # what is wrong is said when the search is sent
            if (experiment := MlflowClient(tracking_uri=uri).get_experiment_by_name(name)) is not None:
                answers.append((str(experiment.experiment_id), str(experiment.lifecycle_stage)))

    thread = threading.Thread(target=ask, name="MLflow's experiment", daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return next(iter(answers), None)


def make_database(file: Path) -> None:
    """Make MLflow's database in a file that is missing, or anew where it is half made and holds nothing.

    The tables are made in a folder beside it, and the file is then moved into place. Raises UserError for a
    damaged file, and what SQLite and SQLAlchemy raise, such as on a full disk; the file is then as it was.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    refuse_damaged(file)
    if not _missing_or_half_made(file):
        return
    with _one_at_a_time(file.parent):
        while _missing_or_half_made(file):
            if file.exists() and 0 <= time.time() - file.stat().st_mtime < MAKING_SECONDS:
                time.sleep(PAUSE_SECONDS)  # another program may be making it
                continue
            with temporary_folder(PREFIX, file.parent) as folder:
                whole = folder / file.name
                _make_tables(whole)
                for ending in SIDE_FILES:  # SQLite would play an old journal back into the new file
                    file.with_name(file.name + ending).unlink(missing_ok=True)
                whole.replace(file)


def is_half_made(file: Path) -> bool:
    """Say whether a file is a database of MLflow's whose making was broken off, and which holds nothing.

    Only such a file may be made anew: one of an older MLflow lacks tables too, and holds somebody's runs.
    """
    try:
        return _is_half_made(file)
    except sqlite3.Error:  # it cannot be read now: MLflow says so
        return False


def refuse_half_made(file: Path, address: str) -> None:
    """Raise UserError for a half made file, or a damaged one, for those who only read; `address` is the
    search's."""
    refuse_damaged(file)
    if is_half_made(file):
        raise UserError(
            f"{file}: MLflow's database is half made, as on a full disk, and holds nothing; "
            f"`tunebook sync {quote(address)}` makes it anew and sends the search"
        )


def refuse_foreign(file: Path) -> None:
    """Raise UserError for a link, and for a database of another program: MLflow would write its own tables
    through the one and into the other, and somebody else's study may name any file."""
    refuse_link(file)
    with suppress(sqlite3.Error), _opened(file, "ro") as database:  # others say what cannot be read
        tables = _tables_of(database)
        if "experiments" not in tables and (others := sorted(tables - _tables_of_mlflow())):
            raise UserError(
                f"{file}: is a database of another program, with the table {others[0]!r}, and not "
                "MLflow's; give tracking.uri a file of its own"
            )


def experiment_in(file: Path, name: str) -> tuple[str, str] | None:
    """Return the id and the lifecycle stage of an experiment; None where there is none, or the file cannot be
    read now. MLflow, which takes seconds to import, is not asked."""
    with suppress(sqlite3.Error), _opened(file, "ro") as database:
        query = "SELECT experiment_id, lifecycle_stage FROM experiments WHERE name = ? ORDER BY 2"
        row = database.execute(query, (name,)).fetchone()  # an active one comes before a deleted one
        return None if row is None else (str(row[0]), str(row[1]))
    return None


def refuse_damaged(file: Path, helps: str = OTHER_DATABASE) -> None:
    """Raise UserError, with what helps, for a file that is no database of SQLite, or a damaged one."""
    try:
        with suppress(sqlite3.OperationalError), _opened(file, "ro") as database:  # not there, or locked
            _names_in(database)
    except sqlite3.DatabaseError as error:
        raise UserError(f"{file}: is no database of SQLite, or a damaged one ({error}); {helps}") from None


def _is_half_made(file: Path) -> bool:
    """Raise sqlite3.OperationalError where the file cannot be read now, such as one that is locked."""
    try:
        with _opened(file, "rw") as database:
            return _lacks_tables(database)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:  # it is no database, or a damaged one
        return False


def _lacks_tables(database: sqlite3.Connection) -> bool:
    """Say whether there are tables of MLflow's alone, without a row, and not all as they should be."""
    tables = _tables_of(database)
    if "experiments" in tables and _has_rows(database, "experiments"):
        return False  # as nearly always; MLflow takes seconds to import
    all_tables = _tables_of_mlflow()
    if not tables <= all_tables or any(_has_rows(database, table) for table in tables - FROM_MIGRATIONS):
        return False
    if tables < all_tables or ALEMBIC not in _names_in(database):
        return True
    from mlflow.store.db.utils import _get_latest_schema_revision

    finished = database.execute(f"SELECT version_num FROM {ALEMBIC}").fetchall()  # the last migration
    return finished != [(_get_latest_schema_revision(),)]


def _opened(file: Path, mode: Literal["ro", "rw"]) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode={mode}", uri=True))


def _names_in(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _tables_of(database: sqlite3.Connection) -> set[str]:
    """Return the names of all tables but SQLite's own and Alembic's, which Optuna's databases have, too."""
    own = ("alembic_", "_alembic_", "sqlite_")
    return {name for name in _names_in(database) if not name.startswith(own)}


def _tables_of_mlflow() -> set[str]:
    quiet_mlflow()
    import_module("mlflow.store.db.utils")  # it imports all tables
    from mlflow.store.db.base_sql_model import Base

    return set(Base.metadata.tables)


def _has_rows(database: sqlite3.Connection, table: str) -> bool:
    """Say whether a table of MLflow's, whose names need no escapes, has a row."""
    return database.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None


def _missing_or_half_made(file: Path) -> bool:
    return not file.exists() or _is_half_made(file)


def _make_tables(file: Path) -> None:
    """Make all tables as MLflow's own store does when it opens a file that is not there."""
    quiet_mlflow()
    from mlflow.store.db.utils import _initialize_tables
    from sqlalchemy import create_engine
    from sqlalchemy.engine import URL
    from sqlalchemy.pool import NullPool

    # no connection stays open: the file is moved afterwards
    _initialize_tables(create_engine(URL.create("sqlite", database=str(file)), poolclass=NullPool))


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Let one process of this program at a time make a database in the folder; no file is left for that."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)
