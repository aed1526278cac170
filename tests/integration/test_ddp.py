"""Trials of two ranks inside real Ray: one after the other in the same processes, and none waits in vain."""

from __future__ import annotations

import os
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from search.facts.hardware import PerTrial
from search.running.raytune import placement
from tests.integration.processes import everyone, is_below, is_rank
from tests.integration.small_trials import Listed, Recorder
from tests.trainable.small_runs import ONE_THREAD, data_set, small_recipe
from tests.waiting import PATIENCE_SECONDS, wait_until
from trainable.checkpoints import checkpoint
from trainable.tune.place import Place
from trainable.tune.trial import TrialTrainable
from trainable.tune.worker import TrialAssignment
from trainable.tune.worker_setup import Shared, WorkerSetup

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]

WORKERS = 2
TWO = PerTrial(cpus=1, gpus=0, workers=WORKERS)
TRIALS = 21
EPOCHS = 30


class StopsAtOnce(FIFOScheduler):  # type: ignore[misc]  # ray ships no types
    """As ASHA stops: by its answer to a result."""

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        return str(TrialScheduler.STOP if result["epochs"] else TrialScheduler.CONTINUE)


class Clock(Recorder):
    """The moment before the first trial and each trial's first result; and which ranks there were."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[float] = [time.monotonic()]
        self.ranks: set[tuple[int, ...]] = set()
        self.places: list[Place] = []

    def on_trial_result(self, *args: Any, **info: Any) -> None:
        super().on_trial_result(*args, **info)
        if "places" in info["result"]:
            self.places = [Place(**each) for each in info["result"]["places"]]
            return
        self.moments.append(time.monotonic())
        self.ranks.add(tuple(sorted(_ranks())))


def tuner(
    assignments: list[TrialAssignment], recorder: Recorder, folder: Path, **settings: Any
) -> tune.Tuner:
    step_seconds = settings.pop("step_seconds", PATIENCE_SECONDS)
    setup = WorkerSetup(
        Shared.put(data_set()),
        ONE_THREAD,
        step_seconds=step_seconds,
        workers=WORKERS,
    )
    trainable = tune.with_parameters(TrialTrainable, setup=setup)
    return tune.Tuner(
        tune.with_resources(trainable, placement(TWO)),
        tune_config=tune.TuneConfig(
            search_alg=Listed(assignments),
            num_samples=-1,
            max_concurrent_trials=1,
            reuse_actors=True,
            scheduler=settings.pop("scheduler", None),
        ),
        run_config=tune.RunConfig(
            storage_path=str(folder / "ray"),
            failure_config=tune.FailureConfig(max_failures=settings.pop("failures", 1)),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            callbacks=[recorder],
            verbose=0,
            **settings,
        ),
    )


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory, ray_session: None) -> Clock:
    """Return when each of 21 trials, stopped after one epoch, gave its result."""
    clock, folder = Clock(), tmp_path_factory.mktemp("stopped")
    assignments = [
        TrialAssignment(small_recipe({"loop.seed": seed}), folder / str(seed)) for seed in range(TRIALS)
    ]
    tuner(assignments, clock, folder, scheduler=StopsAtOnce()).fit()
    wait_until(lambda: not _ranks(), fault=lambda: "what trials took is not free when the last has ended")
    return clock


@pytest.mark.smoke("a trial with two ranks")
def test_after_a_stop_the_next_trial_needs_no_new_process_twenty_times_in_a_row(clock: Clock) -> None:
    assert [each for _, each in sorted(clock.epochs.items(), key=lambda item: int(item[0]))] == [
        [[1]]
    ] * TRIALS
    assert not clock.recovered
    assert len(set.union(*clock.processes.values())) == 1
    assert [len(each) for each in clock.ranks] == [2], "the ranks are the same two from first to last"
    assert [tuple(sorted(each.process for each in clock.places))] == list(clock.ranks), "as they say"
    first, *gaps = [later - earlier for earlier, later in pairwise(clock.moments)]
    assert max(gaps) < first, "for the first one the processes are started, for no other one"


@pytest.mark.scenario
@pytest.mark.parametrize(
    "signals",
    [[(signal.SIGKILL, 0), (signal.SIGKILL, 1)], [(signal.SIGSTOP, 0)]],
    ids=["each is killed", "one hangs"],
)
def test_a_rank_that_is_killed_or_hangs_costs_no_more_than_its_trials_epoch(
    tmp_path: Path, clock: Clock, signals: list[tuple[signal.Signals, int]]
) -> None:
    """Rank 0 keeps the checkpoints and the address where the others meet: neither is lost with it."""
    recipe = small_recipe({"loop.epochs": EPOCHS, "loop.batch_size": 4})
    recorder, folder = Recorder(), tmp_path / "killed"
    sender = threading.Thread(target=_signal_ranks, args=(folder, signals))
    sender.start()
    results = tuner(
        [TrialAssignment(recipe, folder)],
        recorder,
        tmp_path,
        stop=lambda trial_id, result: EPOCHS in [each["epoch"] for each in result["epochs"]],
        step_seconds=_limit(signals[0][0], clock),
        failures=len(signals),
    ).fit()
    sender.join()
    assert not results.errors
    assert recorder.recovered == {"killed": len(signals)}
    (reported,) = recorder.epochs.values()
    again = [index for index, epochs in enumerate(reported) if len(epochs) > 1]
    assert len(again) == len(signals)
    for index in again:
        covered, before = reported[index], reported[index - 1][-1]
        assert covered[-1] >= before, "no more than the epoch in which the rank was killed is lost"
        assert covered == list(range(1, covered[-1] + 1)), "what a checkpoint covers is told, not trained"
    latest = checkpoint.latest(folder)
    assert latest is not None
    assert [each.epoch for each in latest.history()] == list(range(1, EPOCHS + 1))
    wait_until(lambda: not _ranks())


def _limit(number: signal.Signals, clock: Clock) -> float:
    """Return the seconds that an epoch may take, and the start of a rank.

    They are few where a rank is to be found hanging: twice what the first trial took until its result.
    """
    if number != signal.SIGSTOP:
        return PATIENCE_SECONDS
    return 10.0 + 2.0 * (clock.moments[1] - clock.moments[0])


def _signal_ranks(folder: Path, signals: list[tuple[signal.Signals, int]]) -> None:
    """Each signal to one of the two, in the order of their processes, three epochs after the one before."""
    epoch = 0
    for number, which in signals:
        ranks = _ranks_after(folder, epoch + 3)
        epoch = _epochs_in(folder)
        os.kill(ranks[which], number)


def _ranks_after(folder: Path, epoch: int) -> list[int]:
    """Return the processes of both ranks once a checkpoint has so many epochs."""
    wait_until(lambda: _epochs_in(folder) >= epoch and len(_ranks()) == WORKERS, every=0.05)
    return sorted(_ranks())


def _epochs_in(folder: Path) -> int:
    latest = checkpoint.latest(folder) if folder.exists() else None
    return latest.epoch if latest is not None else 0


def _ranks() -> list[int]:
    """This test's processes that are ranks, alive now."""
    return [pid for pid in filter(is_rank, everyone()) if is_below(pid, os.getpid())]
