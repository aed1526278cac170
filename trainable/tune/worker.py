"""Does one rank's part in one trial after the other: a Run is made, trained an epoch at a time, and freed.

The trial's folder is its whole state: rank 0 writes checkpoints there, so that a retry after a crash,
`tunebook resume` and a lost node are one path. A trial that finds a checkpoint first reports the epochs that
it covers, without training, and continues from there.
"""

from __future__ import annotations

import gc
import json
import os
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from trainable.checkpoints import checkpoint
from trainable.checkpoints.checkpoint_store import CheckpointStore
from trainable.collector import paused
from trainable.data import DataSet
from trainable.files.locks import FolderLock
from trainable.probes.network_cost import key_of_cost, measure_cost, share_of_rank
from trainable.ranks import ALONE, Ranks
from trainable.recipe import Recipe
from trainable.recipe.network_cost import NetworkCost
from trainable.run import make_run
from trainable.training.devices import Baseline, held_bytes, memory_fraction
from trainable.training.metrics import EpochResult
from trainable.training.run import Run
from trainable.tune.stop_request import Stopped, is_asked_to_stop
from trainable.tune.watchdog import Watchdog
from trainable.tune.worker_setup import WorkerSetup

# In an epoch that takes longer, checkpoints are written at least so far apart: a crash costs little more
SAVE_SECONDS = 60.0
SAVE_SHARE = 0.02  # writing them may take this part of the time: large models are saved less often


@dataclass(frozen=True)
class TrialAssignment:
    """What the driver assigns to a worker: the recipe to train, and where its checkpoints are."""

    recipe: Recipe
    checkpoints: str | Path  # a folder, or a URI; with a URI, each machine has a folder of its own
    search: str = ""  # the search's id: with a URI, each search has folders of its own on the machines
    # Whether what the network costs is measured and reported before anything is trained
    measures: bool = False

    def config(self) -> dict[str, str]:
        """Return the assignment as Ray's configuration of a trial: flat, since Ray rewrites nested ones."""
        tree = json.dumps(self.recipe.tree())
        measures = "yes" if self.measures else ""
        return {
            "recipe": tree,
            "checkpoints": str(self.checkpoints),
            "search": self.search,
            "measures": measures,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> TrialAssignment:
        """Read what `config` has written. Raises RecipeError for a recipe that is not valid."""
        recipe = Recipe.from_tree(json.loads(config["recipe"]))
        return cls(recipe, config["checkpoints"], config["search"], bool(config["measures"]))

    @property
    def checkpoint_store(self) -> CheckpointStore:
        return CheckpointStore.at(str(self.checkpoints), self.search)


class Worker:
    """One of `ranks`, which trains assignments, one after the other, in one process.

    The setup's data must be on this machine (`DataSet.be_here`).
    """

    def __init__(self, setup: WorkerSetup, ranks: Ranks = ALONE) -> None:
        bench = setup.bench
        if bench.threads is not None:
            torch.set_num_threads(bench.threads)
        if bench.kind == "cuda" and bench.gpu_share < 1.0:
            # beyond its share a trial runs out of memory alone
            total = torch.cuda.get_device_properties(bench.device).total_memory
            torch.cuda.set_per_process_memory_fraction(memory_fraction(bench.gpu_share, total))
        _import_and_freeze()
        if "TORCHINDUCTOR_COMPILE_THREADS" not in os.environ:  # torch takes all processors of the machine
            torch._inductor.config.compile_threads = torch.get_num_threads()
        self._setup = setup
        self._data = setup.data.get()
        self._build = setup.code.model.load() if setup.code.model is not None else None
        self._metrics = {name: each.load() for name, each in setup.code.metrics.items()}
        self._bench = bench
        self._ranks = ranks
        self._folder_lock: FolderLock | None = None
        self._baseline = Baseline()
        self._run: Run | None = None
        # What networks cost that were measured in this process, by what that depends on
        self._costs: dict[str, NetworkCost] = {}
        # The run took this time to make and to load, until an epoch of it has been trained
        self._starting_seconds: float | None = None
        self._checkpoint_seconds = 0.0
        self._search = ""
        self._checkpoints: CheckpointStore | None = None  # the run's checkpoints, on rank 0

    def measure(self, assignment: TrialAssignment) -> NetworkCost:
        """Return what the network of an assignment costs on this device, as one rank of the trial.

        Networks that must cost the same are measured once. Nothing of it touches the trial's own run. Raises
        what making a run raises. Ends the process after the setup's `step_seconds` without a sign.
        """
        key = key_of_cost(assignment.recipe)
        if key not in self._costs:
            recipe = share_of_rank(assignment.recipe, self._setup.workers)
            with Watchdog(self._setup.step_seconds, assignment.checkpoint_store.folder) as self._watchdog:
                run = self._make_run(recipe, ALONE)
                try:
                    self._costs[key] = measure_cost(run)
                finally:
                    run.close()
                    del run
                    held_bytes(self._bench.device)  # it frees the device's memory for the trial
        return self._costs[key]

    def step(self, assignment: TrialAssignment) -> tuple[EpochResult, ...]:
        """Return results that this process has not reported yet: first those that a checkpoint covers, then
        the next epoch's, which it trains.

        Raises FolderInUse while another process writes the trial's checkpoints on this machine, StoreError if
        a store cannot be asked for them, RunError after Stopped, and what making a run and `Run.step` raise.
        Ends the process if no batch is done for the setup's `step_seconds`.
        """
        folder, self._search = assignment.checkpoint_store.folder, assignment.search
        with Watchdog(self._setup.step_seconds, folder, self._ranks.rank) as self._watchdog:
            return self._step(assignment)

    def _step(self, assignment: TrialAssignment) -> tuple[EpochResult, ...]:
        if self._run is None:
            began = time.monotonic()
            if self._ranks.rank == 0:
                checkpoints = assignment.checkpoint_store
                self._folder_lock = FolderLock(checkpoints.folder)
                self._checkpoints = checkpoints
            self._run = self._make_run(assignment.recipe, self._ranks)
            state = self._state_to_resume()
            if state is not None:
                self._run.load_state_dict(state)
            self._starting_seconds, self._checkpoint_seconds = time.monotonic() - began, 0.0
            self._save_from = time.monotonic() + SAVE_SECONDS
            if self._run.history:
                return self._run.history
        result = self._run.step()
        self._save()
        took, self._checkpoint_seconds = self._checkpoint_seconds, 0.0
        result = replace(result, starting_seconds=self._starting_seconds, checkpoint_seconds=took)
        self._starting_seconds = None
        return (result,)

    def _save(self) -> None:
        """Write a checkpoint of the run as it is, on rank 0."""
        began = time.monotonic()
        if self._checkpoints is not None and self._run is not None:
            self._checkpoints.save(self._run.state_dict(), self._run.history, self._run.steps_into_epoch)
        now = time.monotonic()
        self._checkpoint_seconds += now - began
        self._save_from = now + max(SAVE_SECONDS, (now - began) / SAVE_SHARE)

    def _save_if_due(self) -> None:
        """Write a checkpoint in the midst of an epoch if the last one is old, or the search is to stop.

        In the second case it raises Stopped, on rank 0 alone: the other ranks are ended when that has failed.
        """
        stops = self._checkpoints is not None and is_asked_to_stop(self._search)
        if stops or time.monotonic() >= self._save_from:
            self._save()
        if stops:
            raise Stopped("the search is asked to stop")

    def let_go(self) -> None:
        """Let another process write the run's checkpoints; it cannot be trained here any more."""
        self._release_folder()

    def free(self) -> str:
        """Drop the run. Return why this process must not train another one, or an empty string."""
        if self._run is None:
            return ""
        model = weakref.ref(self._run.model)
        try:
            self._run.close()
            self._run = None
            excess = self._baseline.excess(held_bytes(self._bench.device))
        except Exception as error:  # a broken CUDA context fails here first; raised here, no trial is retried
            return f"the last trial could not be freed: {type(error).__name__}: {error}"
        finally:
            self._release_folder()
        if model() is not None:
            return "the last trial's model was not freed"
        return (
            f"{excess / 2**20:.0f} MiB of GPU memory stayed allocated after the last trial" if excess else ""
        )

    def close(self) -> None:
        """End what the run has started; nothing can be trained afterwards."""
        if self._run is not None:
            self._run.close()
        self._release_folder()

    def _make_run(self, recipe: Recipe, ranks: Ranks) -> Run:
        return make_run(
            recipe,
            data=self._data_of(recipe),
            model=self._build,
            bench=self._bench,
            ranks=ranks,
            metrics=self._metrics,
            on_batch=lambda: self._watchdog.beat(),
            on_pause=self._save_if_due,
        )

    def _data_of(self, recipe: Recipe) -> DataSet:
        """Return the images of a recipe: those of a split of its own, or else the search's."""
        shared = self._setup.splits.get(recipe.data.validation_seed or 0)
        if shared is None:
            return self._data
        data = shared.get()
        data.be_here()
        return data

    def _state_to_resume(self) -> dict[str, Any] | None:
        """Return the newest checkpoint that rank 0 can read, on every rank, or None if there is none.

        Rank 0 sends it to the others, so no other machine needs to see rank 0's folder.
        """
        state = self._checkpoints.newest_state() if self._checkpoints is not None else None
        if self._ranks.world == 1:
            return state
        content = self._ranks.bytes_from_first(checkpoint.to_bytes(state) if state is not None else b"")
        return checkpoint.from_bytes(content) if content else None

    def _release_folder(self) -> None:
        self._checkpoints = None
        if self._folder_lock is not None:
            self._folder_lock.release()
            self._folder_lock = None


def _import_and_freeze() -> None:
    """Import what every optimizer imports, and exempt all objects that exist then from garbage collection.

    Otherwise the end of each trial takes 0.3 s longer.
    """
    with paused():
        import torch._dynamo  # noqa: F401
    if not gc.get_freeze_count():  # once in a process
        gc.freeze()
