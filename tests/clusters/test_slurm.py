"""Runs the script for Slurm on hosts with a real Slurm."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from search.record.journal import EndEvent, Event
from search.record.record import Record
from tests.clusters.hosts import Hosts
from tests.clusters.trials import machines_of, resting
from tests.integration.small_searches import digits_study, events_in
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slurm]

LONG = 2000  # epochs of a trial that does not end while a test looks at it


@dataclass
class Job:
    """A job of the script, which searches on digits."""

    hosts: Hosts
    number: str
    folder: Path  # of the search
    log: Path

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def events(self) -> list[Event]:
        return events_in(self.folder)

    def waits_for_both_nodes(self, since: int = 0) -> None:
        """Wait until trials train on both nodes, of which no event before `since` tells."""
        wait_until(lambda: machines_of(self.events()[since:]) == {"t1", "t2"}, fault=self.said)

    def waits_for_epochs(self, count: int) -> None:
        wait_until(lambda: sum(each.event == "epoch" for each in self.events()) >= count, fault=self.said)

    def asked(self) -> dict[str, str]:
        """What Slurm says of it."""
        words = slurm_says(self.hosts, "scontrol", "--oneliner", "show", "job", self.number).split()
        return dict(each.partition("=")[::2] for each in words)

    def ends(self) -> dict[str, str]:
        wait_until(
            lambda: self.asked()["JobState"] not in ("RUNNING", "PENDING", "CONFIGURING", "COMPLETING"),
            every=1.0,
            fault=self.said,
        )
        return self.asked()


def slurm_says(hosts: Hosts, *command: str) -> str:
    done = subprocess.run(command, env=hosts.slurm, capture_output=True, text=True, check=True)
    return done.stdout


class Submit(Protocol):
    def __call__(self, name: str, *, trials: int, epochs: int = 1) -> Job: ...


@pytest.fixture(scope="module")
def submit(slurm: Hosts, checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Submit:
    """Submit a search on digits to two nodes; it takes one processor of each."""
    folder = tmp_path_factory.mktemp("slurm")

    def submitted(name: str, *, trials: int, epochs: int = 1) -> Job:
        study = digits_study(folder / "unused", budget__trials=trials, budget__epochs=epochs)
        file = folder / f"{name}.yaml"
        file.write_text(study.with_values({"scheduler.kind": "none", "concurrent": None}).yaml())
        variables = f"--export=TUNEBOOK_HOME={checkout},PATH,HOME,LANG,RAY_TMPDIR=/tmp/ray/jobs"
        needs = ("--nodelist=t1,t2", "--gpus-per-node=0", "--cpus-per-task=1")
        runs = f"sqlite:///{folder}/unused/mlflow.db"
        script = checkout / "deploy/slurm/tunebook.sbatch"
        search = (str(file), str(folder / "searches"), name, "--tracking-uri", runs)
        command = ("sbatch", "--parsable", f"--chdir={folder}", variables, *needs, str(script), *search)
        number = slurm_says(slurm, *command).strip()
        return Job(slurm, number, folder / "searches" / name, folder / f"tunebook-{number}.log")

    return submitted


@pytest.fixture(scope="module")
def long(submit: Submit, slurm: Hosts) -> Iterator[Job]:
    """A job that trains until a test ends it."""
    job = submit("long", trials=3, epochs=LONG)
    try:
        yield job
    finally:
        slurm_says(slurm, "scancel", job.number)


def raylets(slurm: Hosts) -> list[list[str]]:
    return [slurm.processes(host, "raylet/raylet ") for host in (1, 2)]


@pytest.mark.scenario
def test_a_job_trains_on_both_nodes_and_its_end_is_not_that_of_another_one(
    long: Job, submit: Submit, slurm: Hosts
) -> None:
    job = submit("short", trials=2)
    long.waits_for_both_nodes()
    long.waits_for_epochs(1)
    assert job.asked()["JobState"] in ("PENDING", "RUNNING"), "its end comes while the other one trains"
    with resting(slurm, long.events()):
        assert job.ends()["JobState"] == "COMPLETED", job.said()
    assert Record(job.events()).state == "finished"
    assert machines_of(job.events()) == {"t1", "t2"}
    assert "2 of 2 nodes have started Ray" in job.said()
    assert "\x1b" not in job.said(), "colours are not for a log"
    assert "Traceback" not in job.said()
    wait_until(lambda: all(len(each) == 1 for each in raylets(slurm)), fault=lambda: str(raylets(slurm)))
    for host in (1, 2):  # so jobs of two persons may share a node
        files = slurm.run(host, "ls", "/tmp/ray/jobs").stdout.split()
        assert set(files) == {f"tunebook-{each.number}" for each in (long, job)}
    done = len(long.events())
    wait_until(lambda: len(long.events()) > done + 2, fault=long.said)
    assert not [each for each in long.events() if isinstance(each, EndEvent)]


@pytest.mark.scenario
def test_a_signal_ends_it_cleanly_it_goes_on_and_a_node_that_is_lost_costs_a_retry(
    long: Job, submit: Submit, slurm: Hosts
) -> None:
    long.waits_for_epochs(3)
    slurm_says(slurm, "scancel", "--batch", "--signal=USR1", long.number)
    assert long.ends()["ExitCode"] == "143:0"
    assert Record(long.events()).state == "interrupted"
    assert "Told to stop: the search ends, and goes on when this job is submitted again." in long.said()

    done = len(long.events())
    again = submit("long", trials=3, epochs=LONG)
    again.waits_for_both_nodes(since=done)
    again.waits_for_epochs(sum(each.event == "epoch" for each in again.events()) + 2)
    slurm.cut_off(2)
    try:
        wait_until(lambda: "failed on t2" in again.said(), fault=again.said)
        seen = len(again.events())
        wait_until(lambda: any(each.event == "epoch" for each in again.events()[seen:]), fault=again.said)
        assert again.asked()["JobState"] == "RUNNING"
    finally:
        slurm_says(slurm, "scancel", again.number)
        slurm.start(2)
