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

from search.followers.tracker import ENVIRONMENT
from search.followers.uri import database_file, without_password
from search.record.cursor import read_cursor
from search.record.folder import read_search
from search.record.home import UI_LOG_FILE
from trainable.errors import UserError

SERVER_ENVIRONMENT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""Jobs on traces and prompts would be eight more processes; looking at runs needs none of them."""


def serve(folder: Path, port: int) -> int:
    """Show the search in MLflow's pages at http://127.0.0.1:PORT until Ctrl-C; return the exit code.

    Where a server holds the runs, its address is printed instead. What MLflow prints goes to `mlflow-ui.log`
    in the search's folder. Raises UserError where MLflow's server cannot start, or nothing can be written
    there.
    """
    uri = str(read_search(folder).tracking.uri)
    cursor = read_cursor(folder)
    experiment = cursor.experiment_id if cursor is not None else None
    page = f"/#/experiments/{experiment}/runs" if experiment else ""
    if uri.startswith(("http://", "https://")):
        print(f"{without_password(uri).rstrip('/')}{page}")
        return 0
    file = database_file(uri)
    if file is not None and not file.exists():
        raise UserError(f"{file}: no such file; the search has sent nothing to MLflow yet")
    _check_free(port)
    print(f"http://127.0.0.1:{port}{page}  (Ctrl-C ends it)", flush=True)
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
