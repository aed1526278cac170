"""A private PostgreSQL of Debian's package, on a free port, gone with the block."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.clusters import free_port
from tests.missing import stop_without
from tests.waiting import wait_until

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
USER = "postgres"


@contextmanager
def postgresql_server() -> Iterator[str]:
    """The URI of an empty database. It refuses to run as root, so root starts it as Debian's user for it."""
    if not PROGRAMS:
        stop_without("PostgreSQL", "postgresql")
    programs, port = PROGRAMS[-1].parent, free_port()
    place = Path(tempfile.mkdtemp(prefix="tb-pg-"))
    user = USER if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(place, user)
    data = place / "data"

    def call(program: str, *words: str) -> None:
        command = [str(programs / program), *words]
        subprocess.run(command, check=True, capture_output=True, user=user, cwd=place)

    options = ["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
    call("initdb", "-D", str(data), "-U", "mlflow", *options)
    settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"]
    words = [str(programs / "postgres"), "-D", str(data), "-p", str(port)]
    server = subprocess.Popen(
        words + [word for setting in settings for word in ("-c", setting)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=user,
        cwd=place,
    )
    try:
        _wait_until_ready(programs, port)
        call("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "mlflow", "mlflow")
        yield f"postgresql://mlflow@127.0.0.1:{port}/mlflow"
    finally:
        server.send_signal(signal.SIGQUIT)  # PostgreSQL's immediate shutdown, of all its processes
        server.wait()
        shutil.rmtree(place, ignore_errors=True)


def _wait_until_ready(programs: Path, port: int) -> None:
    asked = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    wait_until(lambda: subprocess.run(asked, check=False).returncode == 0)
