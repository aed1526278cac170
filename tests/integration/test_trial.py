"""The Trainable inside real Ray: one actor serves trials in turn, and whatever fails is tried again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.search import Searcher

from tests.trainable.small_runs import data_set, small_recipe
from trainable import checkpoint
from trainable.errors import RecipeError
from trainable.run import Run
from trainable.trial import Task, TrialTrainable

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]

EPOCHS = small_recipe().loop.epochs


class Listed(Searcher):  # type: ignore[misc]  # ray ships no types
    """Proposes the given tasks, then no more."""

    def __init__(self, tasks: list[Task]) -> None:
        super().__init__()
        self.configs = [task.config() for task in tasks]

    def suggest(self, trial_id: str) -> dict[str, str] | str:
        return self.configs.pop(0) if self.configs else str(Searcher.FINISHED)

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Nothing to learn."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing to save."""


class Recorder(tune.Callback):  # type: ignore[misc]
    """What Ray said of each trial, by the name of its folder."""

    def __init__(self) -> None:
        self.recovered: Counter[str] = Counter()
        self.epochs: dict[str, list[list[int]]] = {}
        self.processes: dict[str, set[int]] = {}

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.recovered[Path(trial.config["folder"]).name] += 1

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        name = Path(trial.config["folder"]).name
        self.epochs.setdefault(name, []).append([tree["epoch"] for tree in result["epochs"]])
        self.processes.setdefault(name, set()).add(result["pid"])


def test_one_actor_serves_trials_in_turn_and_a_trial_that_fails_to_begin_is_retried(tmp_path: Path) -> None:
    half_done = Run(small_recipe(), data=data_set())
    half_done.step()
    half_done.step()
    checkpoint.save(tmp_path / "half-done", half_done.state_dict(), half_done.history)
    recorder = Recorder()
    tasks = [
        Task(small_recipe(), tmp_path / "first"),
        Task(small_recipe(), tmp_path / "half-done"),
        Task(small_recipe({"precision.kind": "tf32"}), tmp_path / "faulty"),
    ]
    results = tune.Tuner(
        tune.with_parameters(TrialTrainable, data=data_set(), device="cpu", threads=1, step_seconds=60.0),
        tune_config=tune.TuneConfig(
            search_alg=Listed(tasks), num_samples=-1, max_concurrent_trials=1, reuse_actors=True
        ),
        run_config=tune.RunConfig(
            storage_path=str(tmp_path / "ray"),
            failure_config=tune.FailureConfig(max_failures=1),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            callbacks=[recorder],
            stop=lambda trial_id, result: result["epochs"][-1]["epoch"] == EPOCHS,
            verbose=0,
        ),
    ).fit()
    assert recorder.epochs == {"first": [[1], [2], [3]], "half-done": [[1, 2], [3]]}
    assert recorder.processes["first"] == recorder.processes["half-done"], "one actor served both"
    assert recorder.recovered == {"faulty": 1}
    (error,) = results.errors
    assert isinstance(error.cause, RecipeError)
    assert [fault.path for fault in error.cause.faults] == ["precision.kind"]
