"""Stands before an HTTP server: it passes requests on, refuses some, or is away for a while."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding")


@dataclass
class Moods:
    """What a proxy does with requests; a test changes it at any time."""

    # This share of the requests is answered with 503, as a store does that is asked too often
    refused_share: float = 0.0
    is_away: bool = False  # whether connections are closed without an answer
    counts: dict[str, int] = field(default_factory=lambda: {"passed": 0, "refused": 0, "closed": 0})

    def next(self, dice: random.Random) -> str:
        mood = "closed" if self.is_away else "refused" if dice.random() < self.refused_share else "passed"
        self.counts[mood] += 1
        return mood


@contextmanager
def proxy_before(port: int) -> Iterator[tuple[int, Moods]]:
    """Give the block the port of a proxy before a server of this machine, and its moods."""
    moods, dice = Moods(), random.Random(0)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            with suppress(ConnectionError):  # a client that was killed
                super().handle_one_request()

        def answer(self) -> None:
            body = self._body()
            match moods.next(dice):
                case "closed":
                    self.close_connection = True
                case "refused":
                    self._send(503, [], b"")
                case _:
                    self._send(*self._passed_on(body))

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            chunks = []
            while length := int(self.rfile.readline().partition(b";")[0], 16):
                chunks.append(self.rfile.read(length))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass  # what follows the last chunk
            return b"".join(chunks)

        def _passed_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            backend = HTTPConnection("127.0.0.1", port)
            try:
                headers = {
                    name: text for name, text in self.headers.items() if name.lower() not in HOP_BY_HOP
                }
                backend.request(self.command, self.path, body, headers)
                found = backend.getresponse()
                return found.status, found.getheaders(), found.read()
            finally:
                backend.close()

        def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response_only(status)
            kept = [each for each in headers if each[0].lower() not in HOP_BY_HOP]
            if not any(name.lower() == "content-length" for name, _ in kept):
                kept.append(("Content-Length", str(len(body))))
            for name, value in kept:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815  # the library's names

        def log_message(self, *words: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1], moods
    finally:
        server.shutdown()
        server.server_close()
