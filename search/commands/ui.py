"""`tunebook ui`: MLflow's pages of a search, served on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from shlex import quote
from typing import BinaryIO

from search.followers.attachments import VIEW
from search.followers.database import ENVIRONMENT, refuse_foreign, refuse_half_made
from search.followers.uri import database_file, without_password
from search.record.cursor import read_cursor, run_page, view_page
from search.record.folder import read_record, read_search
from search.record.home import REPORT_FILE, UI_LOG_FILE
from search.running.marked import marked_folder
from search.running.reaper import VARIABLE
from trainable.errors import UserError
from trainable.files.regular import open_to_write, why
from trainable.processes import undisturbed
from trainable.terminal import program_name, tell

# jobs on traces and prompts would be eight more processes; looking at runs needs none of them
SERVER_ENVIRONMENT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}

# The folder that marks the server's processes, which end with this one, has a name that begins so
MARK = "tunebook-ui-"


def serve(folder: Path, port: int) -> int:
    """Show the search in MLflow's pages at http://127.0.0.1:PORT until Ctrl-C; return the exit code.

    The addresses of the pages are printed once they answer; where a server holds the runs, they are that
    server's, and nothing is started. What MLflow prints goes to `mlflow-ui.log` in the search's folder.
    Raises UserError where MLflow's server cannot start, or nothing can be written there.
    """
    uri = str(read_search(folder).tracking.uri)
    if uri.startswith(("http://", "https://")):
        tell(pages(folder, without_password(uri).rstrip("/")))
        return 0
    file = database_file(uri)
    if file is not None and not file.exists():
        raise UserError(
            f"{file}: no such file; the search has sent nothing to MLflow yet: `{program_name()} sync "
            f"{quote(str(folder))}` sends it"
        )
    if file is not None:
        refuse_foreign(file)
        refuse_half_made(file, str(folder))
    _check_free(port)
    address = f"http://127.0.0.1:{port}"
    tell("MLflow's server is starting, which takes some seconds", sys.stderr)
    command = [sys.executable, *f"-m mlflow server --host 127.0.0.1 --port {port} --workers 1".split()]
    # in the environment: a database's URI may hold a password, and anyone can read a command line
    environment = {**os.environ, **ENVIRONMENT, **SERVER_ENVIRONMENT, "MLFLOW_BACKEND_STORE_URI": uri}
    log = folder / UI_LOG_FILE
    with _opened(log) as out, marked_folder(MARK) as mark:  # MLflow's server imports from where it runs
        environment[VARIABLE] = str(mark.path)
        with ExitStack() as at_end, suppress(KeyboardInterrupt):
            with undisturbed():
                server = subprocess.Popen(command, env=environment, cwd=mark.path, stdout=out, stderr=out)
                at_end.enter_context(server)
                at_end.callback(server.terminate)  # Ctrl-C reaches it too, a signal to this process does not
            if _answers(server, port):
                tell(f"{pages(folder, address)}\n(Ctrl-C ends it)")
            raise UserError(f"MLflow's server has ended with exit code {server.wait()}; {log} tells why")
        return 0


def pages(folder: Path, server: str) -> str:
    """Return the addresses of a search's pages, one a line: trials, charts, the search itself, the report.

    The report is there twice: among the run's files in MLflow, which also opens on another machine, and as
    a file of this one. Before MLflow has the search, only the server's address is known.
    """
    cursor, report = read_cursor(folder), folder / REPORT_FILE
    file = {"file": report.absolute().as_uri()} if report.exists() else {}
    if cursor is None or cursor.experiment_id is None or cursor.parent_run_id is None:
        return _lines({"trials": server, **file})
    experiment, run = cursor.experiment_id, cursor.parent_run_id
    search_id = read_record(folder).search_id if VIEW in cursor.files else None
    named = {
        "trials": view_page(experiment, search_id),
        "charts": view_page(experiment, search_id, charts=True),
        "search": run_page(experiment, run),
    }
    if REPORT_FILE in cursor.files:
        named["report"] = run_page(experiment, run, REPORT_FILE)
    return _lines({**{name: f"{server}/{page}" for name, page in named.items()}, **file})


def _lines(addresses: Mapping[str, str]) -> str:
    return "\n".join(f"{name:<6}  {address}" for name, address in addresses.items())


def _answers(server: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until a server on this machine answers; return whether it has, and not ended before."""
    while server.poll() is None:
        with suppress(OSError, HTTPException), closing(HTTPConnection("127.0.0.1", port, timeout=1)) as asked:
            asked.request("GET", "/health")
            asked.getresponse()  # whatever it says
            return True
        time.sleep(0.2)
    return False


def _opened(log: Path) -> BinaryIO:
    try:
        return os.fdopen(open_to_write(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
    except OSError as error:
        raise UserError(f"{log}: cannot be written: {why(error)}") from None


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does it
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(f"--port {port}: cannot be used: {error.strerror}; give another one") from None
