"""A cluster's jobs, by the REST API of Ray's dashboard at http://HEAD:8265. A refusal becomes one line.

It needs no Ray on this machine. The API is documented at
https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html
"""

from __future__ import annotations

import http.client
import io
import json
import re
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from search.running.cluster_token import send_token, token_to_send, why_refused
from trainable.errors import UserError

# the names of the search and of its folder on the cluster, in a job's metadata
SEARCH, FOLDER = "tunebook.search", "tunebook.folder"
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
POLL_SECONDS, LOG_SECONDS = 0.5, 1.0
PATIENCE_SECONDS = 60.0
ANSWER_SECONDS = 60.0  # within so many a dashboard answers, also one that waits for a busy machine's agent
NOT_YET = "No available agent"  # Ray's words while the machines' agents are starting
HTTP = re.compile(r"^https?://[^/\s]+/?$")
OLDEST_RAY = (2, 0)  # the first whose jobs have the names that we give them
LONGEST_REASON = 500  # so many characters of a refusal are shown: some are a traceback
MIDNIGHT_1980 = (1980, 1, 1, 0, 0, 0)  # the time of all files in a package: equal content has one name


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job, as the dashboard describes it."""

    submission_id: str
    status: str  # PENDING, RUNNING or one of `ENDED`
    message: str | None = None
    start_time: float | None = None  # in milliseconds, as `end_time`
    end_time: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    runtime_env: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Self:
        """Return the job that the API describes."""
        return cls(
            submission_id=str(tree.get("submission_id")),  # None: not started by the API, and none of ours
            status=str(tree.get("status")),
            message=tree.get("message"),
            start_time=tree.get("start_time"),
            end_time=tree.get("end_time"),
            metadata=tree.get("metadata") or {},
            runtime_env=tree.get("runtime_env") or {},
        )


class Refused(UserError):
    """The dashboard has refused a request, with this HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Jobs:
    """The jobs of the cluster whose dashboard is at `address`, such as http://10.0.0.1:8265.

    Every method raises UserError where nothing answers there, where the cluster refuses the token, and where
    it knows no such job.
    """

    def __init__(self, address: str) -> None:
        if not HTTP.match(address):
            raise UserError(
                f"--address {address}: expected the dashboard's http://HOST:PORT, such as http://10.0.0.1:8265"
            )
        self.address = address.rstrip("/")
        send_token()
        self._check_version()

    def submit(
        self, entrypoint: str, name: str, environment: Mapping[str, Any], metadata: Mapping[str, str]
    ) -> str:
        """Start a job and return its name, which the cluster has not seen before.

        The `working_dir` of its environment is a folder here, of which it gets a copy. A cluster that has
        just been started accepts no jobs for some seconds, so the request is repeated.
        """
        package = self._uploaded(Path(environment["working_dir"]))
        asked = {
            "entrypoint": entrypoint,
            "submission_id": name,
            "runtime_env": {**environment, "working_dir": package},
            "metadata": metadata,
        }
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return str(self._json("POST", "/api/jobs/", asked)["submission_id"])
            except Refused as error:
                if NOT_YET not in str(error) or time.monotonic() >= until:
                    raise
                time.sleep(POLL_SECONDS)

    def all(self) -> list[Job]:
        """Return the searches among the cluster's jobs, the latest first."""
        jobs = map(Job.of, self._json("GET", "/api/jobs/"))
        ours = [job for job in jobs if SEARCH in job.metadata]
        return sorted(ours, key=lambda job: job.start_time or 0, reverse=True)

    def one(self, name: str) -> Job:
        """Return a job."""
        return Job.of(self._of_job("GET", name))

    def ended(self, name: str, seconds: float | None = None) -> Job:
        """Return the job once it has ended, or after so many seconds."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            job = self.one(name)
            if job.status in ENDED or (until is not None and time.monotonic() >= until):
                return job
            time.sleep(POLL_SECONDS)

    def log(self, name: str) -> str:
        """Return all that a job has printed so far."""
        return str(self._of_job("GET", name, "/logs")["logs"])

    def tail(self, name: str) -> Iterator[str]:
        """Yield what a job prints, from its beginning, as it comes, until it has ended.

        A dashboard that does not answer is asked again for a minute.
        """
        printed = 0
        silent_since: float | None = None
        while True:
            try:
                ended = self.one(name).status in ENDED  # asked first: then the log below is whole
                text = self.log(name)
                silent_since = None
            except UserError as error:
                silent_since = silent_since or time.monotonic()
                passes = not isinstance(error, Refused) or error.status >= http.client.INTERNAL_SERVER_ERROR
                if not (printed and passes) or time.monotonic() - silent_since > PATIENCE_SECONDS:
                    raise
                ended, text = False, ""
            if len(text) > printed:
                yield text[printed:]
                printed = len(text)
            if ended:
                return
            time.sleep(LOG_SECONDS)

    def stop(self, name: str) -> None:
        """Ask a job to end."""
        self._of_job("POST", name, "/stop")

    def forget(self, name: str) -> None:
        """Remove an ended job from the cluster's list."""
        self._of_job("DELETE", name)

    def _check_version(self) -> None:
        running = str(self._json("GET", "/api/version").get("ray_version"))
        numbers = re.match(r"(\d+)\.(\d+)", running)
        if numbers is None or tuple(map(int, numbers.groups())) < OLDEST_RAY:
            oldest = ".".join(map(str, OLDEST_RAY))
            raise UserError(f"--address {self.address}: Ray {running} runs there; expected {oldest} or newer")

    def _uploaded(self, folder: Path) -> str:
        """Return the URI of a folder's files on the cluster, which they are sent to unless it has them."""
        package = _zipped(folder)
        name = f"_ray_pkg_{sha256(package).hexdigest()[:32]}.zip"
        try:
            self._request("GET", f"/api/packages/gcs/{name}")
        except Refused as error:
            if error.status != http.client.NOT_FOUND:
                raise
            self._request("PUT", f"/api/packages/gcs/{name}", package)
        return f"gcs://{name}"

    def _of_job(self, method: str, name: str, what: str = "") -> Any:
        try:
            return self._json(method, f"/api/jobs/{quote(name, safe='')}{what}")
        except Refused as error:
            if error.status != http.client.NOT_FOUND:
                raise
            names = ", ".join(job.submission_id for job in self.all()) or "none"
            raise Refused(f"{name}: the cluster has no such job; known: {names}", error.status) from None

    def _json(self, method: str, path: str, tree: object = None) -> Any:
        answer = self._request(method, path, None if tree is None else json.dumps(tree).encode())
        try:
            return json.loads(answer)
        except ValueError:
            raise UserError(
                f"--address {self.address}: no Ray dashboard answers there: its answer is no JSON"
            ) from None

    def _request(self, method: str, path: str, content: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self.address}{path}", content, method=method)
        request.add_header("Content-Type", "application/json" if path == "/api/jobs/" else "application/zip")
        if (token := token_to_send()) is not None:
            request.add_unredirected_header("Authorization", f"Bearer {token}")  # no other host gets it
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                found: bytes = answer.read()
                return found
        except urllib.error.HTTPError as error:
            with error:
                said = " ".join(error.read().decode("utf-8", "replace").split())
            if error.code in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
                raise UserError(f"--address {self.address}: {why_refused()}") from None
            refusal = f"status {error.code}: {said[-LONGEST_REASON:] or error.reason}"
            raise Refused(f"--address {self.address}: {refusal}", error.code) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error or type(error).__name__
            raise UserError(f"--address {self.address}: no Ray dashboard answers there: {reason}") from None


def _zipped(folder: Path) -> bytes:
    """Return a folder's files as a zip file, the same bytes for the same content."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                entry = zipfile.ZipInfo(file.relative_to(folder).as_posix(), MIDNIGHT_1980)
                entry.external_attr = file.stat().st_mode << 16
                package.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
