"""Tests what `tunebook status JOB` prints of a job: its own words, without Ray's."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from search.jobs import commands
from search.jobs.client import FOLDER, SEARCH
from tests.search.command_line import Tunebook

RAYS = "2026-11-29 16:00:01,234\tINFO job_manager.py:568 -- Runtime env is setting up.\n"


class FakeJobs:
    """A cluster with one job of a search; a job that shows it prints `shown`, and ends so."""

    shown, state = "", "SUCCEEDED"

    def __init__(self, address: str) -> None:
        self.submitted: dict[str, str] = {}

    def one(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(
            submission_id=name,
            status="RUNNING",
            message="",
            metadata={SEARCH: "mine", FOLDER: "/shared/mine"},
            runtime_env={"env_vars": {"KEY": "value"}},
            start_time=None,
            end_time=None,
        )

    def submit(
        self, entrypoint: str, name: str, runtime_env: dict[str, dict[str, str]], metadata: object
    ) -> None:
        self.submitted = runtime_env["env_vars"]
        assert self.submitted == {"KEY": "value"}

    def ended(self, name: str, seconds: float) -> SimpleNamespace:
        return SimpleNamespace(status=self.state, message="")

    def log(self, name: str) -> str:
        return f"{RAYS}{self.shown}" if self.submitted else f"{RAYS}[1/2] trial 0 finished\n{RAYS}"

    def forget(self, name: str) -> None:
        pass

    def stop(self, name: str) -> None:
        pass


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "Jobs", FakeJobs)


def test_a_job_s_last_words_and_its_search_are_printed_without_what_ray_writes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(FakeJobs, "shown", "mine: running, 1 min\n   1  running  h2 (10.0.0.2)\n")
    commands.status("http://head:8265", "mine-1")
    _, *lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["[1/2] trial 0 finished", "mine: running, 1 min", "   1  running  h2 (10.0.0.2)"]


def test_a_search_that_has_not_begun_is_said_to_have_nothing_to_show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(FakeJobs, "shown", "tunebook: /shared/mine: not a search folder\n")
    monkeypatch.setattr(FakeJobs, "state", "FAILED")
    commands.status("http://head:8265", "mine-1")
    said = " ".join(capsys.readouterr().out.split())
    assert "nothing to show yet: mine-1: `show` failed on the cluster: tunebook: /shared/mine: not" in said


def test_a_stopped_job_answers_in_json_alone(tunebook: Tunebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeJobs, "state", "STOPPED")
    code, out, err = tunebook("stop", "mine-1", "--address", "http://head:8265", "--json")
    assert (code, json.loads(out)) == (0, {"schema": 1, "job": "mine-1", "state": "stopped"})
    assert "submit the same study with --name mine to go on" in err
