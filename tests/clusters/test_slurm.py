"""Runs the script for Slurm on hosts with a real Slurm."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from search.record.journal import EndEvent, Event, PlaceEvent
from search.record.trials import Record
from tests.clusters.hosts import Hosts
from tests.integration.small_searches import digits_study, events_in
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slurm]

LONG = 200
"""Epochs of a trial that does not end while a test looks at it."""


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

    def waits_for_epochs(self, count: int) -> None:
        wait_until(lambda: sum(each.event == "epoch" for each in self.events()) >= count, fault=self.said)

    def asked(self) -> dict[str, str]:
        """What Slurm says of it."""
        words = slurm_says(self.hosts, "scontrol", "--oneliner", "show", "job", self.number).split()
        return dict(each.partition("=")[::2] for each in words)

    def ends(self) -> dict[str, str]:
        wait_until(
            lambda: self.asked()["JobState"] not in ("RUNNING", "PENDING", "CONFIGURING", "COMPLETING"),
            fault=self.said,
        )
        return self.asked()


def slurm_says(hosts: Hosts, *command: str) -> str:
    done = subprocess.run(command, env=hosts.slurm, capture_output=True, text=True, check=True)
    return done.stdout


class Submit(Protocol):
    def __call__(self, name: str, *flags: str, trials: int = 3, epochs: int = 1) -> Job: ...


@pytest.fixture
def submit(slurm: Hosts, checkout: Path, tmp_path: Path) -> Submit:
    """Submits a search of some trials on digits, each on one processor."""

    def submitted(name: str, *flags: str, trials: int = 3, epochs: int = 1) -> Job:
        study = digits_study(tmp_path / "unused", budget__trials=trials, budget__epochs=epochs)
        file = tmp_path / f"{name}.yaml"
        file.write_text(study.with_values({"scheduler.kind": "none", "concurrent": None}).yaml())
        variables = f"TUNEBOOK_HOME={checkout},PATH,HOME,LANG"
        words = ("--parsable", f"--export={variables}", "--gpus-per-node=0", "--cpus-per-task=1", *flags)
        script = str(checkout / "deploy/slurm/tunebook.sbatch")
        where = f"--chdir={tmp_path}"
        searched = (str(file), str(tmp_path / "searches"), name)
        uri = f"sqlite:///{tmp_path}/mlflow.db"
        number = slurm_says(slurm, "sbatch", where, *words, script, *searched, "--tracking-uri", uri).strip()
        return Job(slurm, number, tmp_path / "searches" / name, tmp_path / f"tunebook-{number}.log")

    return submitted


def machines_of(events: list[Event]) -> set[str]:
    return {rank.machine for each in events if isinstance(each, PlaceEvent) for rank in each.ranks}


def test_a_search_runs_on_both_nodes_and_the_job_ends_with_it(submit: Submit, slurm: Hosts) -> None:
    job = submit("whole", trials=2)
    assert job.ends()["JobState"] == "COMPLETED", job.said()
    assert Record(job.events()).state == "finished"
    assert machines_of(job.events()) == {"t1", "t2"}
    assert "2 of 2 nodes have started Ray" in job.said()
    assert "\x1b" not in job.said(), "colours are not for a log"
    assert "Traceback" not in job.said()
    wait_until(lambda: not any(slurm.processes(host, "raylet") for host in (1, 2)))


def test_a_signal_ends_it_cleanly_it_goes_on_and_a_node_that_is_lost_costs_a_retry(
    submit: Submit, slurm: Hosts
) -> None:
    job = submit("going-on", trials=3, epochs=LONG)
    job.waits_for_epochs(3)
    slurm_says(slurm, "scancel", "--batch", "--signal=USR1", job.number)
    assert job.ends()["ExitCode"] == "143:0"
    assert Record(job.events()).state == "interrupted"
    assert "Told to stop: the search ends, and goes on when this job is submitted again." in job.said()

    again = submit("going-on", trials=3, epochs=LONG)
    done = len(job.events())
    again.waits_for_epochs(sum(each.event == "epoch" for each in job.events()) + 2)
    wait_until(lambda: machines_of(again.events()[done:]) == {"t1", "t2"}, fault=again.said)
    slurm.cut_off(2)
    try:
        wait_until(lambda: "failed on t2" in again.said(), fault=again.said)
        seen = len(again.events())
        wait_until(lambda: any(each.event == "epoch" for each in again.events()[seen:]), fault=again.said)
        assert again.asked()["JobState"] == "RUNNING"
    finally:
        slurm_says(slurm, "scancel", again.number)
        slurm.start(2)


def test_the_end_of_one_job_is_not_that_of_another_on_the_same_node(submit: Submit, slurm: Hosts) -> None:
    other = submit("other", "--nodes=1", "--nodelist=t3", trials=1, epochs=LONG)
    try:
        job = submit("short", "--nodes=1", "--nodelist=t3", trials=1)
        other.waits_for_epochs(1)
        assert job.asked()["JobState"] in ("PENDING", "RUNNING"), "its end comes while the other one trains"
        assert job.ends()["JobState"] == "COMPLETED", job.said()
        done = len(other.events())
        wait_until(lambda: len(other.events()) > done + 2, fault=other.said)
        assert not [each for each in other.events() if isinstance(each, EndEvent)]
    finally:
        slurm_says(slurm, "scancel", other.number)
