"""Tests where MLflow's pages of a search are, and what can prevent that they are shown."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from search.commands.ui import pages, serve
from search.followers.attachments import VIEW
from search.record.cursor import Cursor, write_cursor
from search.record.home import REPORT_FILE, UI_LOG_FILE
from tests.search.followers.small_tracking import begun, study_in, write
from trainable.errors import UserError


def folder_of(tmp_path: Path, uri: str) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    study_in(tmp_path, uri).write(folder)
    return folder


def begun_database(file: Path) -> None:
    """A database that holds as little as one can that is not half made."""
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE experiments (name TEXT)")
        database.execute("INSERT INTO experiments VALUES ('Default')")


def test_the_pages_of_a_search_on_a_server_are_the_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(folder_of(tmp_path, "http://tracker:5000/"), 5001) == 0
    assert capsys.readouterr().out == "trials  http://tracker:5000\n"


def test_the_pages_open_in_the_searchs_own_view_with_the_report_beside_them(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, f"sqlite:///{tmp_path}/mlflow.db")
    write(folder, begun(folder))
    known = Cursor(uri="", experiment="tunebook", experiment_id="7", parent_run_id="9f", files={VIEW: "x"})
    write_cursor(folder, known)
    table = "trials  http://here/#/experiments/7/runs?workflowType=machine_learning"
    lines = pages(folder, "http://here").splitlines()
    assert lines == [
        f"{table}&viewStateShareKey=id-mine",
        f"charts  {table.split()[1]}&viewStateShareKey=id-mine&compareRunsMode=CHART",
        "search  http://here/#/experiments/7/runs/9f?workflowType=machine_learning",
    ]
    (folder / REPORT_FILE).touch()
    file = f"file    {(folder / REPORT_FILE).as_uri()}"
    assert pages(folder, "http://here").splitlines() == [*lines, file], "MLflow has no report yet"
    write_cursor(folder, known.model_copy(update={"files": {REPORT_FILE: "y"}}))  # its view is not saved
    lines = pages(folder, "http://here").splitlines()
    report = "http://here/#/experiments/7/runs/9f/artifacts/report.html?workflowType=machine_learning"
    assert (lines[0], lines[-2:]) == (table, [f"report  {report}", file])


def test_there_are_no_pages_before_anything_was_sent(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(UserError, match=r"none\.db: no such file"):
        serve(folder, 5001)


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, f"sqlite:///{tmp_path}/mlflow.db")
    begun_database(tmp_path / "mlflow.db")
    (folder / UI_LOG_FILE).mkdir()
    with pytest.raises(UserError, match=rf"{folder}/{UI_LOG_FILE}: cannot be written: Is a directory"):
        serve(folder, 0)


def test_a_port_in_use_is_reported_before_a_server_is_started(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, f"sqlite:///{tmp_path}/mlflow.db")
    begun_database(tmp_path / "mlflow.db")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=f"--port {port}: cannot be used: Address already in use"):
            serve(folder, port)
