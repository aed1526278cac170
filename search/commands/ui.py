"""Serves MLflow's pages of a search on this machine: `tunebook ui`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from search.followers.attachments import VIEW
from search.followers.saved_view import run_page, view_page
from search.followers.tracker import ENVIRONMENT
from search.followers.uri import database_file, without_password
from search.record.cursor import read_cursor
from search.record.folder import read_record, read_search
from search.record.home import REPORT_FILE, UI_LOG_FILE
from trainable.errors import UserError

SERVER_ENVIRONMENT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""Jobs on traces and prompts would be eight more processes; looking at runs needs none of them."""


def serve(folder: Path, port: int) -> int:
    """Show the search in MLflow's pages at http://127.0.0.1:PORT until Ctrl-C; return the exit code.

    The addresses of the pages are printed; where a server holds the runs, they are that server's, and nothing
    is started. What MLflow prints goes to `mlflow-ui.log` in the search's folder. Raises UserError where
    MLflow's server cannot start, or nothing can be written there.
    """
    uri = str(read_search(folder).tracking.uri)
    if uri.startswith(("http://", "https://")):
        print(pages(folder, without_password(uri).rstrip("/")))
        return 0
    file = database_file(uri)
    if file is not None and not file.exists():
        raise UserError(f"{file}: no such file; the search has sent nothing to MLflow yet")
    _check_free(port)
    print(f"{pages(folder, f'http://127.0.0.1:{port}')}\n(Ctrl-C ends it)", flush=True)
    command = [sys.executable, *f"-m mlflow server --host 127.0.0.1 --port {port} --workers 1".split()]
    # in the environment: a database's URI may hold a password, and anyone can read a command line
    environment = {**os.environ, **ENVIRONMENT, **SERVER_ENVIRONMENT, "MLFLOW_BACKEND_STORE_URI": uri}
    log = folder / UI_LOG_FILE
    with (
        _sigterm_interrupts(),
        _opened(log) as out,
        subprocess.Popen(command, env=environment, cwd=folder, stdout=out, stderr=out) as server,
    ):
        try:
            raise UserError(f"MLflow's server has ended with exit code {server.wait()}; {log} tells why")
        except KeyboardInterrupt:
            server.terminate()  # Ctrl-C reaches the server too; a signal to this process alone does not
    return 0


def pages(folder: Path, server: str) -> str:
    """Returns the addresses of a search's pages, one a line: trials, charts, the search itself, the report.

    Before MLflow has the search, only the server's address is known.
    """
    cursor, report = read_cursor(folder), folder / REPORT_FILE
    beside = [f"report  {report.absolute().as_uri()}"] if report.exists() else []
    if cursor is None or cursor.experiment_id is None or cursor.parent_run_id is None:
        return "\n".join([f"trials  {server}", *beside])
    experiment = cursor.experiment_id
    search_id = read_record(folder).search_id if VIEW in cursor.files else None
    named = {
        "trials": view_page(experiment, search_id),
        "charts": view_page(experiment, search_id, charts=True),
        "search": run_page(experiment, cursor.parent_run_id),
    }
    return "\n".join([*(f"{name}  {server}/{page}" for name, page in named.items()), *beside])


def _opened(log: Path) -> BinaryIO:
    try:
        return os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
    except OSError as error:
        raise UserError(f"{log}: cannot be written: {error.strerror}") from None


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Turns SIGTERM into a KeyboardInterrupt for the block: processes started in it are not left behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does it
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(f"--port {port}: cannot be used: {error.strerror}; give another one") from None
