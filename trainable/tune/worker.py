"""One rank's part in trial after trial: a Run is made, trained an epoch at a time, and freed for the next.

The trial's folder is its whole state: checkpoints are written there by rank 0, so that a retry after a crash,
`tunebook resume` and a lost node are one path. A trial that finds a checkpoint first tells the epochs that it
covers, without training, and goes on from there.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainable.checkpoints import checkpoint
from trainable.checkpoints.checkpoint_store import Kept
from trainable.data import DataSet
from trainable.files.folder_lock import Claim
from trainable.ranks import ALONE, Ranks
from trainable.recipe import Recipe
from trainable.training.memory import Baseline, held_bytes
from trainable.training.metrics import EpochResult
from trainable.training.run import Run


@dataclass(frozen=True)
class Task:
    """What the driver hands to a trial: plain data, since Ray rewrites nested configurations."""

    recipe: Recipe
    place: str | Path
    """Where its checkpoints are kept: a folder, or a URI, and then each machine has a folder of its own."""
    search: str = ""
    """The search's id: another one has nothing in that folder."""

    def config(self) -> dict[str, str]:
        tree = json.dumps(self.recipe.tree())
        return {"recipe": tree, "place": str(self.place), "search": self.search}

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> Task:
        return cls(Recipe.from_tree(json.loads(config["recipe"])), config["place"], config["search"])

    @property
    def kept(self) -> Kept:
        return Kept.at(str(self.place), self.search)


class Worker:
    """Trains Tasks as one of `ranks`, one after the other, in one process.

    Args:
        data: shared by all trials, and on this machine (`DataSet.be_here`).
        device: "cpu" or "cuda"; a trial that was given no GPU must not take one that it sees.
        threads: torch's intra-op threads.
        gpu_share: the part of the GPU's memory that is this rank's, in (0, 1].
        ranks: the other processes of the trial.
        download: let torchvision and timm fetch published weights.
    """

    def __init__(
        self,
        data: DataSet,
        device: str,
        threads: int,
        gpu_share: float = 1.0,
        ranks: Ranks = ALONE,
        download: bool = False,
    ) -> None:
        torch.set_num_threads(threads)
        if device == "cuda" and gpu_share < 1.0:  # beyond its share a trial runs out of memory alone
            torch.cuda.set_per_process_memory_fraction(gpu_share)
        self._data = data
        self._device = torch.device(device)
        self._gpu_share = gpu_share
        self._ranks = ranks
        self._download = download
        self._claim: Claim | None = None
        self._baseline = Baseline()
        self._run: Run | None = None
        self._kept: Kept | None = None
        """Where the run's checkpoints are, on rank 0."""

    def step(self, task: Task) -> tuple[EpochResult, ...]:
        """The task's results that have not been told from this process: what a checkpoint covers, once; else
        the next epoch's.

        Raises FolderTaken while another process writes the task's checkpoints on this machine, StoreError
        where a store cannot be asked for them, and what making a Run and `Run.step` raise.
        """
        if self._run is None:
            if self._ranks.rank == 0:
                kept = task.kept
                self._claim = Claim(kept.folder)
                self._kept = kept
            self._run = self._made(task)
            state = self._state()
            if state is not None:
                self._run.load_state_dict(state)
                return self._run.history
        result = self._run.step()
        if self._kept is not None:
            self._kept.save(self._run.state_dict(), self._run.history)
        return (result,)

    def free(self) -> str:
        """Drop the run; what stands against another one in this process, in words, or nothing."""
        if self._run is None:
            return ""
        model = weakref.ref(self._run.model)
        try:
            self._run.close()
            self._run = None
            excess = self._baseline.excess(held_bytes(self._device))
        except Exception as error:  # a broken CUDA context fails here first; raised here, no trial is retried
            return f"the last trial could not be freed: {type(error).__name__}: {error}"
        finally:
            self._let_go()
        if model() is not None:
            return "the last trial's model was not freed"
        return (
            f"{excess / 2**20:.0f} MiB of GPU memory stayed allocated after the last trial" if excess else ""
        )

    def close(self) -> None:
        """End what the run has started; nothing can be trained afterwards."""
        if self._run is not None:
            self._run.close()
        self._let_go()

    def _made(self, task: Task) -> Run:
        return Run(
            task.recipe,
            data=self._data,
            device=self._device,
            gpu_share=self._gpu_share,
            ranks=self._ranks,
            download=self._download,
        )

    def _state(self) -> dict[str, Any] | None:
        """What to go on from: the newest checkpoint that rank 0 can read, which it tells the others; None for
        nothing. So no other machine needs to see its folder."""
        state = self._kept.newest_state() if self._kept is not None else None
        if self._ranks.world == 1:
            return state
        content = self._ranks.bytes_from_first(checkpoint.to_bytes(state) if state is not None else b"")
        return checkpoint.from_bytes(content) if content else None

    def _let_go(self) -> None:
        """Give up the task's folder."""
        self._kept = None
        if self._claim is not None:
            self._claim.release()
            self._claim = None
