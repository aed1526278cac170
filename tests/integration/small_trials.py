"""What the tests of trials in real Ray share: assignments in a row, and what Ray said of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.search import Searcher

from trainable.tune.worker import TrialAssignment


class Listed(Searcher):  # type: ignore[misc]  # ray ships no types
    """A searcher that proposes these assignments, then no more."""

    def __init__(self, assignments: list[TrialAssignment]) -> None:
        super().__init__()
        self.configs = [each.config() for each in assignments]

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
        self.recovered[Path(trial.config["checkpoints"]).name] += 1

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        if "places" in result:  # ranks have started, and trained nothing yet
            return
        name = Path(trial.config["checkpoints"]).name
        self.epochs.setdefault(name, []).append([tree["epoch"] for tree in result["epochs"]])
        self.processes.setdefault(name, set()).add(result["pid"])
