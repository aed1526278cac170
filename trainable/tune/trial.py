"""Trains the trials of a search inside Ray Tune's class Trainable,
in an actor that serves one after the other.

A trial of one process trains in this process; one of several processes has a team of ranks (`tune.team`).
Both are used alike, and stay alive from trial to trial.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from trainable.collector import paused

with paused():
    from ray import tune

    from trainable.recipe.network_cost import NetworkCost
    from trainable.training.metrics import EpochResult
    from trainable.tune.causes import refusals_named
    from trainable.tune.place import Place
    from trainable.tune.team import Team, ray_place
    from trainable.tune.watchdog import Watchdog
    from trainable.tune.worker import TrialAssignment, Worker
    from trainable.tune.worker_setup import WorkerSetup


HOLD_SECONDS = 1.0  # a process that holds its GPU answers so often; it ends as soon after it is told to


class MemoryLeak(RuntimeError):
    """The last trial's memory was not freed: this process must not train another trial."""


class Crew(Protocol):
    """Whoever trains the assignments: a `Worker` here, or a `Team` of them."""

    def measure(self, assignment: TrialAssignment) -> NetworkCost: ...

    def step(self, assignment: TrialAssignment) -> tuple[EpochResult, ...]: ...

    def let_go(self) -> None: ...

    def free(self) -> str: ...

    def close(self) -> None: ...


class TrialTrainable(tune.Trainable):  # type: ignore[misc]  # ray ships no types for it
    """Ray's trial, which trains one TrialAssignment; `reset_config` takes the next one in the same process.

    An error in `setup` or `reset_config` would be one of Ray's own, without the trial's reason. So
    these only take the assignment, and whatever may fail happens in `step`: the first call starts the ranks
    and makes the run. The same holds for memory that the last trial did not free: the first step of the next
    one raises MemoryLeak, and it is tried again in new processes, at the cost of one of its retries.
    """

    def setup(self, config: dict[str, str], setup: WorkerSetup) -> None:
        """Take the first assignment; `config` is `TrialAssignment.config()`."""
        self._worker_setup = setup
        self._crew: Crew | None = None
        self._crew_seconds = 0.0  # what it took to start, until a result says so
        self._leak = ""
        self._holds = False
        self._assigned = config
        self._has_measured = self._has_placed = False

    def place(self) -> Place:
        """Return where this process is; where several ranks are comes with a result of their own."""
        return ray_place()

    def hold(self) -> None:
        """Make this process keep its GPU and train nothing until it is released, so that no other trial comes
        there."""
        self._holds = True

    def release(self) -> None:
        """Have this process train after all, which was told to hold."""
        self._holds = False

    def let_go(self) -> None:
        """Let another process write the trial's checkpoints: this one trains it no more, since it pauses."""
        if self._crew is not None:
            self._crew.let_go()

    def reset_config(self, new_config: dict[str, str]) -> bool:
        """Free the last trial's run and take the next assignment.
        Always returns True: Ray drops a trial on False."""
        if self._crew is not None and not self._leak:
            with self._deadline(new_config):
                problem = self._crew.free()
            if problem and self._worker_setup.workers > 1:
                # ranks are replaced without this process, and that costs no retry
                self._crew.close()
                self._crew = None
            else:
                self._leak = problem
        self._assigned = new_config
        self._has_measured, self._has_placed, self._crew_seconds = False, False, 0.0
        return True

    @refusals_named()
    def step(self) -> dict[str, Any]:
        """Train one epoch: `epochs` holds the EpochResults that this process has not reported yet.

        The first step of an assignment that `measures` trains nothing: `costs` holds what the network costs,
        in a list, since Ray takes mappings apart. So it is with the first step of several ranks, which starts
        those that are not there: `places` holds where they are.

        Raises MemoryLeak, RankLost if a process of the trial has died, DiskRefused if a disk is full, and
        what `Worker.step` raises. After `hold` there are none, and nothing is trained.
        """
        if self._holds:
            time.sleep(HOLD_SECONDS)
            return {"epochs": []}
        if self._leak:
            raise MemoryLeak(self._leak)
        assignment = TrialAssignment.from_config(self._assigned)
        folder = assignment.checkpoint_store.folder
        if self._crew is None:
            began = time.monotonic()
            self._crew = self._make_crew(folder)
            if not isinstance(self._crew, Team):  # a team's attempt begins when it has started
                self._crew_seconds = time.monotonic() - began
        if isinstance(self._crew, Team) and not self._has_placed:
            self._has_placed = True
            return {"epochs": [], "places": [each.model_dump() for each in self._crew.places]}
        if isinstance(self._crew, Team) and not self._crew.has_joined:
            began = time.monotonic()
            self._crew.join()
            self._crew_seconds += time.monotonic() - began
        if assignment.measures and not self._has_measured:
            self._has_measured, self._crew_seconds = True, 0.0
            return {"epochs": [], "costs": [self._crew.measure(assignment).model_dump()]}
        return {"epochs": [self._with_start(each).tree() for each in self._crew.step(assignment)]}

    def _with_start(self, result: EpochResult) -> EpochResult:
        """Count what the crew took to start in the first epoch that it trains."""
        if result.starting_seconds is None:
            return result
        seconds, self._crew_seconds = self._crew_seconds, 0.0
        return replace(result, starting_seconds=result.starting_seconds + seconds)

    def cleanup(self) -> None:
        if self._crew is not None:
            self._crew.close()

    def _deadline(self, new_config: dict[str, str]) -> AbstractContextManager[object]:
        """End this process if freeing a run hangs, with the reason where the next trial's are looked for.

        Ray would wait for ever. A team has deadlines of its own.
        """
        if self._worker_setup.workers > 1:
            return nullcontext()
        assignment = TrialAssignment.from_config(new_config)
        return Watchdog(self._worker_setup.step_seconds, assignment.checkpoint_store.folder)

    def _make_crew(self, folder: Path) -> Crew:
        """Start what trains. All of it has a deadline, except bringing the images here."""
        if self._worker_setup.workers > 1:
            return Team(self._worker_setup)
        self._worker_setup.data.get().be_here()
        with Watchdog(self._worker_setup.step_seconds, folder):
            return Worker(self._worker_setup)
