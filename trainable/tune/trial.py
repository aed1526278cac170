"""One trial of a search inside Ray Tune's class Trainable, in an actor that serves trial after trial.

A trial of one process trains in this very one; one of several has a team of ranks (`tune.team`). Both are
used alike, and kept warm from trial to trial.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from ray import tune

from trainable.data import DataSet
from trainable.training.metrics import EpochResult
from trainable.tune.team import Shared, Team
from trainable.tune.watchdog import Watchdog
from trainable.tune.worker import Task, Worker


class MemoryLeak(RuntimeError):
    """The last trial's memory was not given back: this process must not serve another one."""


class Crew(Protocol):
    """Who trains the tasks: a `Worker` here, or a `Team` of them."""

    def step(self, task: Task) -> tuple[EpochResult, ...]: ...

    def free(self) -> str: ...

    def close(self) -> None: ...


class TrialTrainable(tune.Trainable):  # type: ignore[misc]  # ray ships no types for it
    """Trains one Task; `reset_config` takes the next one in the same process.

    Ray retries only trials that are RUNNING, which one is neither in `setup` nor in `reset_config`. So these
    only take the task, and whatever may fail happens in `step`: the ranks are started and the run is made in
    the first. That goes for memory that the last trial did not give back, too: the first step of the next one
    raises MemoryLeak, and Ray retries it in fresh processes, at the cost of one of its retries.
    """

    def setup(
        self,
        config: dict[str, str],
        data: Shared[DataSet],
        device: str,
        threads: int,
        step_seconds: float,
        gpu_share: float = 1.0,
        workers: int = 1,
        download: bool = False,
    ) -> None:
        """Take the first task.

        Args:
            config: `Task.config()`.
            data: shared by all trials through Ray's object store.
            device: "cpu" or "cuda"; a trial that was given no GPU must not take one that it sees.
            threads: torch's intra-op threads, of each rank.
            step_seconds: the watchdog's deadline for an epoch, for making the run too where it is the first.
            gpu_share: the part of the GPU's memory that is a rank's, in (0, 1].
            workers: ranks of a trial.
            download: let torchvision and timm fetch published weights, once a machine.
        """
        self._data, self._device, self._threads = data, device, threads
        self._step_seconds, self._gpu_share = step_seconds, gpu_share
        self._workers, self._download = workers, download
        self._crew: Crew | None = None
        self._leak = ""
        self._given = config

    def reset_config(self, new_config: dict[str, str]) -> bool:
        """Free the last trial's run and take the next task. Always True: Ray drops a trial on False."""
        if self._crew is not None and not self._leak:
            problem = self._crew.free()
            if problem and self._workers > 1:
                # ranks are replaced without this process, and at no retry's cost
                self._crew.close()
                self._crew = None
            else:
                self._leak = problem
        self._given = new_config
        return True

    def step(self) -> dict[str, Any]:
        """One epoch: `epochs` holds the EpochResults that the driver has not heard of from this process.

        Raises MemoryLeak, RankLost where a process of the trial has died, and what `Worker.step` raises.
        """
        if self._leak:
            raise MemoryLeak(self._leak)
        task = Task.from_config(self._given)
        if self._crew is None:
            self._crew = self._make_crew(task.kept.folder)
        with Watchdog(self._step_seconds, task.kept.folder):
            results = self._crew.step(task)
        return {"epochs": [result.tree() for result in results]}

    def cleanup(self) -> None:
        if self._crew is not None:
            self._crew.close()

    def _make_crew(self, notes: Path) -> Crew:
        """Start who trains. To copy data behind a URI to this machine may take its time; all else has a
        deadline."""
        if self._workers == 1:
            data = self._data.get()
            data.be_here()
            with Watchdog(self._step_seconds, notes):
                return Worker(data, self._device, self._threads, self._gpu_share, download=self._download)
        return Team(
            self._workers,
            self._data,
            self._device,
            self._threads,
            self._gpu_share,
            download=self._download,
            seconds=self._step_seconds,
        )
