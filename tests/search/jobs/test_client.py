"""Tests the client of Ray's dashboard against a small server that answers as the dashboard does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from search.jobs import client
from search.jobs.client import FOLDER, SEARCH, Jobs
from trainable.errors import UserError

JOB = {"submission_id": "mine-1", "status": "RUNNING", "metadata": {SEARCH: "mine", FOLDER: "/shared/mine"}}


class Dashboard(ThreadingHTTPServer):
    """What the dashboard knows, and what it was asked."""

    version = "2.60.0"
    busy = 0  # so many more jobs are refused, as while its agents start
    lines = ("one\n", "two\n", "three\n")  # what the job prints: a line more each time it is asked

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.packages: dict[str, bytes] = {}
        self.submitted: list[dict[str, object]] = []
        self.asked: list[tuple[str, str | None]] = []
        self.logs = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answers(BaseHTTPRequestHandler):
    server: Dashboard

    def do_GET(self) -> None:
        dashboard, ended = self.server, self.server.logs >= len(self.server.lines)
        dashboard.asked.append((self.path, self.headers["Authorization"]))
        match self.path.strip("/").split("/"):
            case ["api", "version"]:
                self.answer({"ray_version": dashboard.version})
            case ["api", "packages", "gcs", name]:
                self.answer({}, 200 if name in dashboard.packages else 404)
            case ["api", "jobs"]:
                self.answer([JOB, {"submission_id": None, "status": "RUNNING", "metadata": None}])
            case ["api", "jobs", "mine-1"]:
                self.answer({**JOB, "status": "SUCCEEDED" if ended else "RUNNING"})
            case ["api", "jobs", "mine-1", "logs"]:
                dashboard.logs = min(dashboard.logs + 1, len(dashboard.lines))
                self.answer({"logs": "".join(dashboard.lines[: dashboard.logs])})
            case _:
                self.answer("no such job", 404)

    def do_PUT(self) -> None:
        self.server.packages[self.path.rpartition("/")[2]] = self.content()
        self.answer("")

    def do_POST(self) -> None:
        asked = json.loads(self.content())
        if self.server.busy:
            self.server.busy -= 1
            self.answer("No available agent to submit job, please try again later.", 500)
            return
        self.server.submitted.append(asked)
        self.answer({"submission_id": asked["submission_id"]})

    def content(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def answer(self, tree: object, status: int = 200) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write((tree if isinstance(tree, str) else json.dumps(tree)).encode())

    def log_message(self, format: str, *words: object) -> None:
        pass


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Dashboard]:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("POLL_SECONDS", "LOG_SECONDS"):
        monkeypatch.setattr(client, name, 0.0)
    with Dashboard() as found:
        threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield found
        found.shutdown()


def test_a_folder_is_sent_once_and_its_job_started_when_the_cluster_is_ready(
    dashboard: Dashboard, tmp_path: Path
) -> None:
    (tmp_path / "work" / "deep").mkdir(parents=True)
    (tmp_path / "work" / "deep" / "a.txt").write_text("text")
    dashboard.busy = 2
    environment = {"working_dir": str(tmp_path / "work"), "env_vars": {"A": "1"}}
    for name in ("mine-1", "mine-2"):
        assert Jobs(dashboard.address).submit("exec true", name, environment, {SEARCH: "mine"}) == name
    ((package, content),) = dashboard.packages.items()
    assert ZipFile(BytesIO(content)).read("deep/a.txt") == b"text"
    assert dashboard.submitted[0] == {
        "entrypoint": "exec true",
        "submission_id": "mine-1",
        "runtime_env": {"working_dir": f"gcs://{package}", "env_vars": {"A": "1"}},
        "metadata": {SEARCH: "mine"},
    }


def test_a_log_is_followed_to_its_end_and_each_part_printed_once(dashboard: Dashboard) -> None:
    assert list(Jobs(dashboard.address).tail("mine-1")) == ["one\n", "two\n", "three\n"]


def test_jobs_of_others_are_not_listed_and_an_unknown_one_is_told_with_those_that_are(
    dashboard: Dashboard,
) -> None:
    jobs = Jobs(dashboard.address)
    assert [job.submission_id for job in jobs.all()] == ["mine-1"]
    with pytest.raises(UserError, match=r"^other: the cluster has no such job; known: mine-1$"):
        jobs.one("other")


@pytest.mark.parametrize("version", ["1.13.0", "unknown"])
def test_a_cluster_with_an_old_ray_is_refused(dashboard: Dashboard, version: str) -> None:
    dashboard.version = version
    with pytest.raises(UserError, match=f"Ray {version} runs there; expected 2.0 or newer"):
        Jobs(dashboard.address)


def test_the_token_is_sent_with_each_request(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    Jobs(dashboard.address).all()
    assert {sent for _, sent in dashboard.asked} == {"Bearer secret"}
