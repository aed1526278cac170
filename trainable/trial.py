"""One trial of a search: a Run inside Ray Tune's class Trainable, in an actor that serves trial after trial.

The trial's folder is its whole state: checkpoints are written there by the trial itself, so that Ray's retry
after a crash, `tunebook resume` and a lost node are one path. A trial that finds a checkpoint first reports
the epochs that it covers, without training, and goes on from there.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ray import tune

from trainable import checkpoint
from trainable.claim import Claim
from trainable.data import DataSet
from trainable.memory import Baseline, held_bytes
from trainable.metrics import EpochResult
from trainable.recipe import Recipe
from trainable.run import Run
from trainable.watchdog import Watchdog, clear_notes


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

    Ray retries only trials that are RUNNING, which one is neither in `setup` nor in `reset_config`. So these
    only take the task, and whatever may fail happens in `step`: the run is made at the start of the first.
    That goes for memory that the last trial did not give back, too: the first step of the next one raises
    MemoryLeak, and Ray retries it in a fresh process, at the cost of one of its retries.
    """

    def setup(
        self,
        config: dict[str, str],
        data: DataSet,
        device: str,
        threads: int,
        step_seconds: float,
        gpu_share: float = 1.0,
    ) -> None:
        """Take the first task.

        Args:
            config: `Task.config()`.
            data: shared by all trials through Ray's object store.
            device: "cpu" or "cuda"; a trial that was given no GPU must not take one that it sees.
            threads: torch's intra-op threads.
            step_seconds: the watchdog's deadline for an epoch, for making the run too where it is the first.
            gpu_share: the part of the GPU's memory that is this trial's, in (0, 1].
        """
        torch.set_num_threads(threads)
        self._data = data
        self._device = torch.device(device)
        self._step_seconds = step_seconds
        self._gpu_share = gpu_share
        self._baseline = Baseline()
        self._leak = ""
        self._run: Run | None = None
        self._claim: Claim | None = None
        self._given = config

    def reset_config(self, new_config: dict[str, str]) -> bool:
        """Free the last trial's run and take the next task. Always True: Ray drops a trial on False."""
        self._leak = self._free()
        self._let_go()
        self._given = new_config
        return True

    def step(self) -> dict[str, Any]:
        """One epoch: `epochs` holds the EpochResults that the driver has not heard of from this process.

        Raises FolderTaken while another process works on the trial, MemoryLeak, and what making a Run and
        `Run.step` raise.
        """
        folder = Path(self._given["folder"])
        if self._claim is None:
            self._claim = Claim(folder)
            clear_notes(folder)
        if self._leak:
            raise MemoryLeak(self._leak)
        with Watchdog(self._step_seconds, folder):
            return {"epochs": [result.tree() for result in self._results(folder)]}

    def cleanup(self) -> None:
        if self._run is not None:
            self._run.close()
        self._let_go()

    def _results(self, folder: Path) -> tuple[EpochResult, ...]:
        """What a checkpoint covers, once; else the next epoch's result."""
        if self._run is None:
            self._run = self._make_run()
            state = checkpoint.newest_state(folder)
            if state is not None:
                self._run.load_state_dict(state)
                return self._run.history
        result = self._run.step()
        checkpoint.save(folder, self._run.state_dict(), self._run.history)
        return (result,)

    def _make_run(self) -> Run:
        recipe = Task.from_config(self._given).recipe
        return Run(recipe, data=self._data, device=self._device, gpu_share=self._gpu_share)

    def _free(self) -> str:
        """Drop the run; what stands against another one in this process, in words, or nothing."""
        if self._run is None:
            return self._leak
        model = weakref.ref(self._run.model)
        try:
            self._run.close()
            self._run = None
            excess = self._baseline.excess(held_bytes(self._device))
        except Exception as error:  # a broken CUDA context fails here first; raised here, no trial is retried
            return f"the last trial could not be freed: {type(error).__name__}: {error}"
        if model() is not None:
            return "the last trial's model was not freed"
        return (
            f"{excess / 2**20:.0f} MiB of GPU memory stayed allocated after the last trial" if excess else ""
        )

    def _let_go(self) -> None:
        """Give up the folder."""
        if self._claim is not None:
            self._claim.release()
            self._claim = None
