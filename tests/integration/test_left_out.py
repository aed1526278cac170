"""A GPU and a machine on which trials crash are left out. Ray is told of two GPUs; every trial computes on
the CPU, and in one test the two GPUs say that they are two machines without any."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import ray

from search.commands.asked import resolved_study
from search.facts.hardware import Hardware, Node, PerTrial
from search.record.home import Home
from search.record.journal import EndEvent, Journal, StartEvent
from search.reporting.timeline import timeline
from search.running.driver import make_ledger
from search.running.prepare import decide, load
from search.running.raytune import Hooks, Pool, run_trials
from search.running.slots import FixedSlots
from search.running.switch import StopSwitch
from tests.integration.small_searches import digits_study, events_in
from tests.waiting import wait_until
from trainable.bench import Bench
from trainable.tune.place import Place
from trainable.tune.trial import TrialTrainable
from trainable.tune.worker_setup import WorkerSetup

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]

GPUS = 2  # as many as `ray_session` says that there are


class OnTheCpu(TrialTrainable):
    """A trial that trains on the CPU, whatever GPU it has; it crashes before the first step if `is_bad` says
    so."""

    def setup(self, config: dict[str, Any], setup: WorkerSetup) -> None:
        super().setup(config, replace(setup, bench=replace(setup.bench, device_name="cpu")))
        self.searched = Path(config["checkpoints"]).parents[1]

    def is_bad(self) -> bool:
        return True

    def step(self) -> dict[str, Any]:
        if not self._holds and self.is_bad():
            raise RuntimeError("CUDA error: unspecified launch failure")
        return super().step()


class OneBadGpu(OnTheCpu):
    """A trial that crashes on GPU 1; on the other one, trials wait until a process is parked on GPU 1."""

    def is_bad(self) -> bool:
        (gpu,) = self.place().gpus
        if gpu.number != "1":
            wait_until((self.searched / "parked").exists)
        return gpu.number == "1"

    def hold(self) -> None:
        super().hold()
        (self.searched / "parked").touch()


class OneBadMachine(OnTheCpu):
    """A trial that crashes on one machine; on the other one, a trial waits until one has crashed, and those
    after it until a process is parked."""

    def place(self) -> Place:
        (gpu,) = super().place().gpus
        name = "bad" if gpu.number == "1" else "good"
        return Place(machine=name, address=name, node=name, process=os.getpid())

    def is_bad(self) -> bool:
        crashed, trains = self.searched / "crashed", self.searched / "trains"
        if self.place().machine == "bad":
            crashed.touch()
            return True
        wait_until((self.searched / "parked" if trains.exists() else crashed).exists)
        trains.touch()
        return False

    def hold(self) -> None:
        super().hold()
        (self.searched / "parked").touch()


@dataclass
class Ran:
    """What is left of a search."""

    fault: str | None
    said: list[str]
    ends: Mapping[int, str]
    started: set[int]
    machines: list[tuple[str, str]]  # the machine of each attempt, and how it ended there


def run(folder: Path, trials: int, trainable: type[TrialTrainable], per_trial: PerTrial) -> Ran:
    """Train trials of one epoch on two CPUs and two GPUs."""
    study = digits_study(folder, name="mine", budget__trials=trials, budget__epochs=1, limits__retries=0)
    study = resolved_study(study.with_values({"scheduler.kind": "none"}))
    (folder / "mine").mkdir()
    said: list[str] = []
    prepared = decide(load(study, Home.of(study), Hardware((Node(2, 0),))))
    prepared = replace(prepared, per_trial=per_trial, bench=Bench(say=said.append))
    fits = Node(2, GPUS).fits(per_trial) or 1
    with Journal(prepared.home.folder) as journal:
        ledger, switch = make_ledger(prepared, journal), StopSwitch()
        ledger.begin("mine")
        run_trials(prepared, ledger, switch, Pool(FixedSlots(fits, fits)), Hooks(), trainable)
    events = events_in(prepared.home.folder)
    ends = {each.trial: each.state for each in events if isinstance(each, EndEvent)}
    started = {each.trial for each in events if isinstance(each, StartEvent)}
    attempts = timeline(events, None).attempts
    return Ran(switch.fault, said, ends, started, [(each.place, each.outcome) for each in attempts])


def machine() -> str:
    return f"{socket.gethostname()} ({ray.util.get_node_ip_address()})"


@pytest.mark.scenario
def test_a_gpu_on_which_three_trials_crashed_is_kept_from_the_others_which_finish(tmp_path: Path) -> None:
    """The trial that comes to that GPU afterwards has not begun there: it loses nothing, without a retry."""
    ran = run(tmp_path, 5, OneBadGpu, PerTrial(1, 1.0))
    first, second, third = sorted(trial for trial, state in ran.ends.items() if state == "failed")
    (said,) = ran.said
    assert said == f"{machine()}, GPU 1: left out, since trials {first}, {second} and {third} failed there"
    assert sorted(ran.ends.values()) == ["failed"] * 3 + ["finished"] * 2
    assert ran.fault is None


@pytest.mark.scenario
def test_a_machine_that_fails_all_trials_gets_no_more_and_the_other_one_trains_the_rest(
    tmp_path: Path,
) -> None:
    ran = run(tmp_path, 6, OneBadMachine, PerTrial(1, 1.0))
    first, second, third = sorted(trial for trial, state in ran.ends.items() if state == "failed")
    assert ran.said == [f"bad: left out, since trials {first}, {second} and {third} failed there"]
    assert ran.machines.count(("bad", "failed")) == 3
    assert ran.machines.count(("good", "finished")) == 3
    assert ran.fault is None


@pytest.mark.scenario
def test_a_search_that_has_no_gpu_left_says_so_and_harms_no_other_trial(tmp_path: Path) -> None:
    """Each trial has both GPUs."""
    ran = run(tmp_path, 20, OnTheCpu, PerTrial(1, 2.0))
    assert ran.said == [
        f"{machine()}, GPU {number}: left out, since trials 0, 1 and 2 failed there" for number in range(GPUS)
    ]
    assert ran.fault == f"no place is left to train on: {'; '.join(ran.said)}"
    assert ran.ends == dict.fromkeys(range(3), "failed")
    assert ran.started == set(ran.ends), "what came to a GPU that is left out has not begun"
