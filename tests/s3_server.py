"""A real S3 server on this machine, in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import wait_until

BUCKET = "tunebook"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@dataclass(frozen=True)
class S3Server:
    """A server with one empty bucket, at a URI."""

    uri: str
    address: str  # it answers as Amazon does, for other services too
    process: subprocess.Popen[bytes]

    @contextmanager
    def silent(self) -> Iterator[None]:
        """For the block it takes connections and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server for the block, with the keys to it in the environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    before = {name: os.environ.get(name) for name in KEYS}
    os.environ.update(KEYS)
    query = f"scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"
    try:
        wait_until(lambda: _answers(port))
        _make_bucket(query)
        yield S3Server(f"s3://{BUCKET}?{query}", f"127.0.0.1:{port}", server)
    finally:
        server.kill()
        server.wait()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _make_bucket(query: str) -> None:
    from pyarrow.fs import FileSystem

    files, _ = FileSystem.from_uri(f"s3://{BUCKET}?{query}&allow_bucket_creation=true")
    files.create_dir(BUCKET)
