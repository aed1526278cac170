"""Searches as jobs of a real cluster, seen from a machine that reaches its dashboard alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from search.commands.options import IMPORTS
from search.learning.search import Search
from tests.integration.clusters import Cluster, tunebook
from tests.integration.drivers import assert_all_agree
from tests.integration.small_searches import digits_study, epochs_by_trial, events_in
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def study(tmp_path: Path) -> Path:
    digits_study(tmp_path / "storage", name="mine", budget__trials=2).write(tmp_path)
    return tmp_path / "study.yaml"


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """One trial of three ranks, which no node holds alone."""
    small = digits_study(tmp_path / "storage", name="wide", resources__workers=3, budget__trials=1)
    small.write(tmp_path)
    return tmp_path / "study.yaml"


def job_in(said: str) -> str:
    return said.split("job ", 1)[1].split(":", 1)[0]


@pytest.mark.smoke("a submitted job")
def test_a_submitted_search_runs_on_the_cluster_and_is_fetched(
    one_node: Cluster, study: Path, tmp_path: Path
) -> None:
    submitted = one_node.tunebook("submit", study, "--address", one_node.dashboard)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    job = job_in(submitted.stdout)
    assert "[2/2] trial" in submitted.stdout, "its log is followed"

    stands = one_node.tunebook("status", job, RAY_API_SERVER_ADDRESS=one_node.dashboard)
    assert f"{job}  mine    succeeded" in stands.stdout
    assert "where the time went" in stands.stdout, "it shows the search, too"
    assert ".py:" not in stands.stdout, "no line of Ray's"
    here = tmp_path / "here"
    fetched = one_node.tunebook("fetch", job, "--address", one_node.dashboard, "-o", here, "--json")
    assert fetched.returncode == 0, fetched.stderr
    assert json.loads(fetched.stdout) == {"schema": 1, "folder": str(here)}
    there = tmp_path / "storage" / "mine"
    assert_same(here, there)
    assert Search(here).progress.best == Search(there).progress.best
    assert "the documented recipe" in (here / "report.txt").read_text()


def assert_same(fetched: Path, there: Path) -> None:
    for name in ("best.yaml", "events.jsonl", "trials.png"):
        assert (fetched / name).read_bytes() == (there / name).read_bytes()


@pytest.mark.scenario
def test_a_search_that_is_stopped_goes_on_when_it_is_submitted_again_and_is_listed(
    cluster: Cluster, study: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "storage" / "mine"
    at = ("--address", cluster.dashboard)
    values = ("budget.epochs=20", "scheduler.kind=none", "base.model.width=16")
    longer = (*(word for value in values for word in ("--set", value)), *at)
    job = job_in(cluster.tunebook("submit", study, *longer, "--detach").stdout)
    wait_until(
        lambda: len(epochs_by_trial(events_in(folder)).get(0, [])) >= 2,
        fault=lambda: cluster.tunebook("logs", job, *at).stdout,
    )
    stopped = cluster.tunebook("stop", job, *at)
    assert "submit the same study with --name mine to go on" in stopped.stdout, stopped.stderr
    assert Search(folder).progress.state == "interrupted"
    before = events_in(folder)

    again = cluster.tunebook("submit", study, *longer)
    assert again.returncode == 0, again.stdout
    events = events_in(folder)
    assert events[: len(before)] == before
    assert epochs_by_trial(events) == {trial: list(range(1, 21)) for trial in range(2)}
    assert_all_agree(folder)

    job = job_in(again.stdout)
    assert re.search(rf"{job} +mine +succeeded", cluster.tunebook("status", *at).stdout), "among all jobs"
    assert "[2/2] trial" in cluster.tunebook("logs", job, *at).stdout
    here = ("-o", tmp_path / "here")
    fetched = cluster.tunebook("fetch", job, *at, "--from", folder, *here)
    assert fetched.returncode == 0, fetched.stderr
    assert_same(tmp_path / "here", folder)
    once_more = cluster.tunebook("fetch", job, *at, *here)
    assert (once_more.returncode, "exists already" in once_more.stderr) == (2, True)


@pytest.mark.scenario
def test_a_driver_outside_of_the_cluster_trains_a_trial_over_two_nodes(
    cluster: Cluster, wide: Path, tmp_path: Path
) -> None:
    """What any machine on the cluster's network can do; jobs do the same from inside."""
    done = cluster.tunebook("search", wide, "--address", cluster.address)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = Search(tmp_path / "storage" / "wide").progress
    assert [(trial.state, trial.epochs) for trial in summary.trials] == [("finished", 4)]
    client = cluster.tunebook("search", wide, "--name", "other", "--address", f"ray://{cluster.address}")
    assert (client.returncode, "expected `auto` or HOST:PORT" in client.stderr) == (2, True)


def test_a_dashboard_that_does_not_answer_is_told_in_one_line(cluster: Cluster) -> None:
    nobody = cluster.tunebook("status", "--address", "http://127.0.0.1:1")
    assert (nobody.returncode, nobody.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("token", "wanted"),
    [
        ({}, "the cluster asks for a token: set RAY_AUTH_TOKEN"),
        ({"RAY_AUTH_TOKEN": "x" * 32}, "refuses the token"),
    ],
)
def test_a_token_that_is_missing_or_wrong_is_told_in_one_line(
    cluster: Cluster, study: Path, tmp_path: Path, token: dict[str, str], wanted: str
) -> None:
    """How the cluster's address is given, and which commands ask it, makes no difference."""
    auto = {} if token else {"RAY_ADDRESS": cluster.address}
    for command, variables in (
        (("submit", study, "--address", cluster.dashboard), {}),
        (("status", "--address", cluster.dashboard), {}),
        (("search", study, "--address", "auto" if auto else cluster.address), auto),
    ):
        refused = tunebook(*command, HOME=str(tmp_path), **variables, **token)
        assert refused.returncode == 2
        *stages, line = refused.stderr.splitlines()
        assert wanted in line
        assert all(each.startswith(IMPORTS) for each in stages)  # what takes long on a busy machine


def test_a_job_that_is_not_there_is_told_with_those_that_are(cluster: Cluster) -> None:
    for command in (("status",), ("stop",), ("logs",), ("logs", "--follow"), ("fetch",)):
        missing = cluster.tunebook(*command, "nonsuch", "--address", cluster.dashboard)
        assert (missing.returncode, "no such job; known: " in missing.stderr) == (2, True)


def test_a_cluster_too_small_for_a_trial_is_told_before_any_starts(cluster: Cluster, study: Path) -> None:
    wide = ("--set", "resources.workers=5", "--name", "wide", "--address", cluster.dashboard)
    refused = cluster.tunebook("submit", study, *wide)
    assert refused.returncode == 1
    assert "there is room for 4" in refused.stdout


def test_machines_without_a_compiler_are_named_before_any_trial_that_needs_one(
    cluster: Cluster, study: Path, tmp_path: Path
) -> None:
    compiled = ("--set", "base.loop.compile=true", "--name", "compiled", "--address", cluster.dashboard)
    refused = cluster.tunebook("submit", study, *compiled)
    assert refused.returncode == 1
    said = re.findall(
        r"machine (\S+ \([\d.]+\)): loop.compile needs a compiler: none of no-compiler-here", refused.stdout
    )
    assert said == [said[0], said[0]], "both nodes have one address here"
    assert "Traceback" not in refused.stdout
    assert not events_in(tmp_path / "storage" / "compiled")
