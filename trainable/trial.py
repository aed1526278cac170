"""One trial of a search: a Run inside Ray Tune's class Trainable, in an actor that serves trial after trial.

The trial's folder is its whole state: checkpoints are written there by the trial itself, so that Ray's retry
after a crash, `tunebook resume` and a lost node are one path. A trial that finds a checkpoint first reports
the epochs that it covers, without training, and goes on from there.
"""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ray import tune

from trainable import checkpoint
from trainable.data import DataSet
from trainable.metrics import EpochResult
from trainable.recipe import Recipe
from trainable.run import Run
from trainable.watchdog import Watchdog

MEMORY_FLOOR_BYTES = 64 * 2**20
"""GPU memory that may stay allocated between two trials of one process (libraries' own workspaces)."""


@dataclass(frozen=True)
class Task:
    """What the driver hands to a trial: plain data, since Ray rewrites nested configurations."""

    recipe: Recipe
    folder: Path

    def config(self) -> dict[str, str]:
        return {"recipe": json.dumps(self.recipe.tree()), "folder": str(self.folder)}

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> Task:
        return cls(Recipe.from_tree(json.loads(config["recipe"])), Path(config["folder"]))


class MemoryLeak(RuntimeError):
    """The last trial's memory was not given back: this process must not serve another one."""


class TrialTrainable(tune.Trainable):  # type: ignore[misc]  # ray ships no types for it
    """Trains one Task; `reset_config` takes the next one in the same process.

    Args of `setup`: `data`, shared by all trials through Ray's object store; `threads`, torch's intra-op
    threads; `step_seconds`, the watchdog's deadline for one epoch.
    """

    _restored: tuple[EpochResult, ...]
    """What a checkpoint covers and this process has not reported."""

    def setup(self, config: dict[str, str], data: DataSet, threads: int, step_seconds: float) -> None:
        torch.set_num_threads(threads)
        self._data = data
        self._step_seconds = step_seconds
        self._leak = ""
        self._begin(config)

    def reset_config(self, new_config: dict[str, str]) -> bool:
        """Free the last trial's model and begin the next trial. Always True: Ray drops a trial on False."""
        self._leak = self._free()
        self._begin(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """One epoch: `epochs` holds the EpochResults that the driver has not heard of from this process."""
        if self._leak:
            raise MemoryLeak(self._leak)
        if restored := self._restored:
            self._restored = ()
            return {"epochs": [result.tree() for result in restored]}
        with Watchdog(self._step_seconds, self._task.folder):
            result = self._run.step()
            checkpoint.save(self._task.folder, self._run.state_dict(), self._run.history)
        return {"epochs": [result.tree()]}

    def cleanup(self) -> None:
        self._run.close()

    def _begin(self, config: dict[str, str]) -> None:
        self._task = Task.from_config(config)
        self._run = Run(self._task.recipe, data=self._data)
        self._restored = ()
        latest = checkpoint.latest(self._task.folder)
        if latest is not None:
            self._run.load_state_dict(latest.load())
            self._restored = self._run.history

    def _free(self) -> str:
        """Drop the run; what is still held afterwards, in words, or nothing."""
        model = weakref.ref(self._run.model)
        self._run.close()
        del self._run
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            held = torch.cuda.memory_allocated()
            if held > MEMORY_FLOOR_BYTES:
                return f"{held / 2**20:.0f} MiB of GPU memory stayed allocated after the last trial"
        return "the last trial's model was not freed" if model() is not None else ""
