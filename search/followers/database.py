"""Makes MLflow's SQLite file whole or not at all, and knows one that was left half made.

MLflow makes its tables by some fifty migrations, each for itself. Where one cannot be written, MLflow fails
on that file for ever: it begins again, and finds tables that are there already.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Literal

from search.followers.quiet import quiet_mlflow
from search.followers.uri import refuse_link
from trainable.errors import UserError
from trainable.files.temporary import temporary_folder

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
    """Return whether a file is a database of MLflow's whose making was broken off, and which holds nothing.

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
        asked = "SELECT experiment_id, lifecycle_stage FROM experiments WHERE name = ? ORDER BY 2"
        found = database.execute(asked, (name,)).fetchone()  # an active one comes before a deleted one
        return None if found is None else (str(found[0]), str(found[1]))
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
    """Return whether there are tables of MLflow's alone, without a row, and not all as they should be."""
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
    """Return whether a table of MLflow's, whose names need no escapes, has a row."""
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
