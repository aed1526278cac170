"""One trial of a search inside Ray Tune's class Trainable, in an actor that serves trial after trial.

A trial of one process trains in this very one; one of several has a team of ranks (`tune.team`). Both are
used alike, and kept warm from trial to trial.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from ray import tune

from trainable.training.metrics import EpochResult
from trainable.tune.seat import Seat
from trainable.tune.team import Team
from trainable.tune.watchdog import Watchdog
from trainable.tune.worker import TrialAssignment, Worker


class MemoryLeak(RuntimeError):
    """The last trial's memory was not given back: this process must not serve another one."""


class Crew(Protocol):
    """Who trains the assignments: a `Worker` here, or a `Team` of them."""

    def step(self, assignment: TrialAssignment) -> tuple[EpochResult, ...]: ...

    def free(self) -> str: ...

    def close(self) -> None: ...


class TrialTrainable(tune.Trainable):  # type: ignore[misc]  # ray ships no types for it
    """Trains one TrialAssignment; `reset_config` takes the next one in the same process.

    Ray retries only trials that are RUNNING, which one is neither in `setup` nor in `reset_config`. So these
    only take the assignment, and whatever may fail happens in `step`: the ranks are started and the run is
    made in the first. That goes for memory that the last trial did not give back, too: the first step of the
    next one raises MemoryLeak, and Ray retries it in fresh processes, at the cost of one of its retries.
    """

    def setup(self, config: dict[str, str], seat: Seat) -> None:
        """Take the first assignment; `config` is `TrialAssignment.config()`."""
        self._seat = seat
        self._crew: Crew | None = None
        self._leak = ""
        self._assigned = config

    def reset_config(self, new_config: dict[str, str]) -> bool:
        """Free the last trial's run and take the next assignment. Always True: Ray drops a trial on False."""
        if self._crew is not None and not self._leak:
            problem = self._crew.free()
            if problem and self._seat.workers > 1:
                # ranks are replaced without this process, and at no retry's cost
                self._crew.close()
                self._crew = None
            else:
                self._leak = problem
        self._assigned = new_config
        return True

    def step(self) -> dict[str, Any]:
        """One epoch: `epochs` holds the EpochResults that this process has not reported yet.

        Raises MemoryLeak, RankLost where a process of the trial has died, and what `Worker.step` raises.
        """
        if self._leak:
            raise MemoryLeak(self._leak)
        assignment = TrialAssignment.from_config(self._assigned)
        folder = assignment.checkpoint_store.folder
        if self._crew is None:
            self._crew = self._make_crew(folder)
        with Watchdog(self._seat.step_seconds, folder):
            results = self._crew.step(assignment)
        return {"epochs": [result.tree() for result in results]}

    def cleanup(self) -> None:
        if self._crew is not None:
            self._crew.close()

    def _make_crew(self, folder: Path) -> Crew:
        """Start who trains. All of it has a deadline, but for copying data behind a URI to this machine."""
        if self._seat.workers > 1:
            return Team(self._seat)
        self._seat.data.get().be_here()
        with Watchdog(self._seat.step_seconds, folder):
            return Worker(self._seat)
