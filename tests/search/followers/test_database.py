"""Tests that MLflow's file is made whole or not at all, and that one left half made is made anew."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from search.commands.ui import serve
from search.followers.audit import audit
from search.followers.database import MAKING_SECONDS, deleted_experiment, is_half_made, make_database
from search.learning.search import Search
from tests.full_disk import files_of_at_most
from tests.search.followers.small_tracking import (
    a_search,
    begun,
    client_of,
    delivered,
    runs_of,
    storage_with_database,
    study_in,
    tracker_of,
    write,
)
from trainable.errors import UserError

ONE_EXPERIMENT = "INSERT INTO experiments (name) VALUES ('somebodys')"


@pytest.fixture
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's database with all its tables, and not even an experiment in it."""
    file = storage_with_database(tmp_path_factory) / "mlflow.db"
    run_in(file, "DELETE FROM experiments")
    return file


def run_in(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        for statement in statements:
            database.execute(statement)


def left_by_a_full_disk(file: Path) -> None:
    """What MLflow itself leaves where the disk is full when it makes its tables, some time ago."""
    from mlflow import MlflowClient
    from sqlalchemy.exc import OperationalError

    half = file.with_name("half.db")  # this process's MLflow does not close what it has once opened
    with files_of_at_most(300_000), pytest.raises(OperationalError, match="disk I/O error"):
        MlflowClient(tracking_uri=f"sqlite:///{half}").search_experiments()
    shutil.copy(half, file)
    changed = file.stat().st_mtime - MAKING_SECONDS
    os.utime(file, (changed, changed))


@pytest.mark.parametrize(
    "statements",
    [
        (),
        ("CREATE TABLE experiments (name TEXT)",),
        ("CREATE TABLE runs (id TEXT)", "CREATE TABLE alembic_version (version_num TEXT)"),
        ("CREATE TABLE workspaces (name TEXT)", "INSERT INTO workspaces VALUES ('default')"),
        ("CREATE TABLE runs (id TEXT)", "CREATE TABLE _alembic_tmp_runs (id TEXT)"),
    ],
)
def test_a_file_that_lacks_tables_and_holds_nothing_is_half_made(
    tmp_path: Path, statements: tuple[str, ...]
) -> None:
    file = tmp_path / "of 100% of us.db"
    file.touch()
    run_in(file, *statements)
    assert is_half_made(file)


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE experiments (name TEXT)", ONE_EXPERIMENT),
        ("CREATE TABLE registered_models (name TEXT)", "INSERT INTO registered_models VALUES ('theirs')"),
        ("CREATE TABLE experiments (name TEXT)", "CREATE TABLE invoices (number INTEGER)"),
    ],
)
def test_what_holds_something_or_is_somebody_elses_is_never_made_anew(
    tmp_path: Path, statements: tuple[str, ...]
) -> None:
    file = tmp_path / "mlflow.db"
    run_in(file, *statements)
    content = file.read_bytes()
    make_database(file)
    assert file.read_bytes() == content


def test_a_file_that_is_no_database_is_left_to_mlflow(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    file.write_text("this is a letter, and longer than what SQLite reads first" * 10)
    assert not is_half_made(file)


def test_all_tables_are_whole_only_after_the_last_migration(whole: Path) -> None:
    assert not is_half_made(whole)
    run_in(whole, "UPDATE alembic_version SET version_num = '451aebb31d03'")
    assert is_half_made(whole)
    run_in(whole, "DROP TABLE alembic_version")
    assert is_half_made(whole)


def test_on_a_full_disk_there_is_no_database_and_nothing_beside_it(tmp_path: Path) -> None:
    from sqlalchemy.exc import OperationalError

    with files_of_at_most(8192), pytest.raises(OperationalError):
        make_database(tmp_path / "mlflow.db")
    assert not list(tmp_path.iterdir())


def test_a_file_that_another_program_is_making_is_waited_for(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mlflow.db"
    file.touch()
    monkeypatch.setattr("search.followers.database.time.sleep", lambda seconds: shutil.copy(whole, file))
    make_database(file)
    assert file.read_bytes() == whole.read_bytes()


def test_those_who_only_read_name_the_command_that_makes_it_anew(tmp_path: Path) -> None:
    folder = tmp_path / "it's mine"
    folder.mkdir()
    study = study_in(tmp_path)
    study.write(folder)
    write(folder, begun(folder))
    (tmp_path / "mlflow.db").touch()
    says = r"mlflow\.db: MLflow's database is half made.*`tunebook sync '.*it'\"'\"'s mine'`"
    with pytest.raises(UserError, match=says):
        serve(folder, 5001)
    assert any("is half made" in each for each in audit(Search(folder)).differences)
    assert deleted_experiment(study) is None
    assert (tmp_path / "mlflow.db").stat().st_size == 0, "who only reads makes nothing"


@pytest.mark.parametrize(
    ("tables", "link"),
    [(["experiments"], True), (["invoices"], False), (["alembic_version", "studies", "trials"], False)],
    ids=["a link", "any", "Optuna's"],
)
def test_nobody_writes_into_the_database_of_another_program_or_through_a_link(
    tmp_path: Path, tables: list[str], link: bool
) -> None:
    folder, other = tmp_path / "mine", tmp_path / "theirs.db"
    folder.mkdir()
    run_in(other, *(f"CREATE TABLE {name} (n INTEGER)" for name in tables))
    content = other.read_bytes()
    if link:
        (tmp_path / "link.db").symlink_to(other)
    named = tmp_path / ("link.db" if link else "theirs.db")
    study = study_in(tmp_path, f"sqlite:///{named}")
    study.write(folder)
    write(folder, begun(folder))
    says = "link" if link else "theirs.db: is a database of another program, with the table"
    with pytest.raises(UserError, match=says):
        serve(folder, 5001)
    assert any(says in each for each in audit(Search(folder)).differences)
    assert not tracker_of(folder, study).sync().complete
    assert says in str(deleted_experiment(study))
    assert other.read_bytes() == content


def test_a_damaged_database_is_named_with_what_helps(tmp_path: Path) -> None:
    folder, file = tmp_path / "mine", tmp_path / "mlflow.db"
    folder.mkdir()
    file.write_text("this is a letter, and longer than what SQLite reads first" * 10)
    study = study_in(tmp_path, f"sqlite:///{file}")
    write(folder, begun(folder))
    study.write(folder)
    helps = (
        "mlflow.db: is no database of SQLite, or a damaged one (file is not a database); put an earlier copy"
    )
    with pytest.raises(UserError, match=re.escape(helps)):
        serve(folder, 5001)
    assert any(helps in each for each in audit(Search(folder)).differences)
    assert helps in str(tracker_of(folder, study).sync())


@pytest.mark.slow("MLflow makes its tables, once in part and once whole: 3 s")
@pytest.mark.parametrize("leave", [left_by_a_full_disk, lambda file: None])
def test_everything_arrives_where_the_database_was_half_made_or_is_missing(
    tmp_path: Path, leave: Callable[[Path], None]
) -> None:
    folder, file = tmp_path / "mine", tmp_path / "mlflow.db"
    folder.mkdir()
    leave(file)
    write(folder, a_search(folder))
    assert delivered(folder).complete
    (own,), trials = runs_of(client_of(tmp_path), folder)
    assert (own.info.status, len(trials)) == ("FINISHED", 4)
    assert not list(tmp_path.glob(".*"))
