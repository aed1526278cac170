"""A real MLflow server, to be started late, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from search.commands.ui import SERVER_ENVIRONMENT
from tests.integration.clusters import free_port
from tests.waiting import wait_until


class Server:
    """`mlflow server` in a process group of its own; runs go to a database, by default an SQLite file."""

    def __init__(self, folder: Path, database: str = "", artifacts: str = "", **variables: str) -> None:
        self._folder = folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.database = database or f"sqlite:///{folder}/mlflow.db"
        self._artifacts = artifacts or str(folder / "artifacts")
        self._variables = variables
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = f"-m mlflow server --host 127.0.0.1 --port {self.port} --workers 1".split()
        stores = ["--backend-store-uri", self.database, "--artifacts-destination", self._artifacts]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *arguments, *stores],
                cwd=self._folder,
                env={**os.environ, **SERVER_ENVIRONMENT, **self._variables},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._answers)

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=1) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False
