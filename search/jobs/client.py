"""A cluster's jobs, by Ray's Jobs API at http://HEAD:8265. Its refusals become one line each."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from search.running.cluster_token import send_token, why_refused
from trainable.errors import UserError

# the names of the search and of its folder on the cluster, in a job's metadata
SEARCH, FOLDER = "tunebook.search", "tunebook.folder"
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
POLL_SECONDS = 0.5
PATIENCE_SECONDS = 60.0
NOT_YET = "No available agent"  # Ray's words while the machines' agents are starting
HTTP = re.compile(r"^https?://[^/\s]+/?$")


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
        with self._plain_errors():
            from ray.job_submission import JobSubmissionClient

            for chatty in ("ray.dashboard", "ray._private.runtime_env"):
                _quieten(chatty)
            self._client = JobSubmissionClient(self.address)

    def submit(
        self, entrypoint: str, name: str, environment: dict[str, Any], metadata: dict[str, str]
    ) -> str:
        """Start a job and return its name, which the cluster has not seen before.

        A cluster that has just been started accepts no jobs for some seconds, so the request is repeated.
        """
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with self._plain_errors():
                    started: str = self._client.submit_job(
                        entrypoint=entrypoint, submission_id=name, runtime_env=environment, metadata=metadata
                    )
                    return started
            except UserError as error:
                if NOT_YET not in str(error) or time.monotonic() >= until:
                    raise
                time.sleep(POLL_SECONDS)

    def all(self) -> list[Any]:
        """Return the searches among the cluster's jobs, as Ray's JobDetails, the latest first."""
        with self._plain_errors():
            ours = [job for job in self._client.list_jobs() if SEARCH in (job.metadata or {})]
        return sorted(ours, key=lambda job: job.start_time or 0, reverse=True)

    def one(self, name: str) -> Any:
        """Return Ray's JobDetails of a job."""
        with self._plain_errors(name):
            return self._client.get_job_info(name)

    def ended(self, name: str, seconds: float | None = None) -> Any:
        """Return the job's details once it has ended, or after so many seconds."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            job = self.one(name)
            if str(job.status) in ENDED or (until is not None and time.monotonic() >= until):
                return job
            time.sleep(POLL_SECONDS)

    def log(self, name: str) -> str:
        """Return all that a job has printed."""
        with self._plain_errors(name):
            text: str = self._client.get_job_logs(name)
            return text

    async def tail(self, name: str) -> AsyncIterator[str]:
        """Yield what a job prints, from its beginning, as it comes."""
        with self._plain_errors(name):
            async for text in self._client.tail_job_logs(name):
                yield text

    def stop(self, name: str) -> None:
        """Ask a job to end."""
        with self._plain_errors(name):
            self._client.stop_job(name)

    def forget(self, name: str) -> None:
        """Remove an ended job from the cluster's list."""
        with self._plain_errors(name):
            self._client.delete_job(name)

    @contextlib.contextmanager
    def _plain_errors(self, name: str | None = None) -> Iterator[None]:
        """Turn Ray's errors into messages for a person."""
        from aiohttp import ClientError
        from ray.exceptions import AuthenticationError
        from requests.exceptions import RequestException

        try:
            yield
        except AuthenticationError:
            raise UserError(f"--address {self.address}: {why_refused()}") from None
        except (ConnectionError, RequestException, ClientError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"--address {self.address}: no Ray dashboard answers there: {reason}") from None
        except RuntimeError as error:
            if name is not None and "status code 404" in str(error):
                names = ", ".join(job.submission_id for job in self.all()) or "none"
                raise UserError(f"{name}: the cluster has no such job; known: {names}") from None
            reason = " ".join(str(error).split())
            raise UserError(f"--address {self.address}: {reason}") from None


def _quieten(package: str) -> None:
    """Silence a package's loggers except for errors; some of them have a level of their own."""
    for name in [package, *(each for each in logging.root.manager.loggerDict if each.startswith(package))]:
        logging.getLogger(name).setLevel(logging.ERROR)
