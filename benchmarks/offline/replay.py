"""Runs a search in simulated time: the product's samplers and pruning over known curves.

Workers train side by side, one epoch each in turn. So trials end in mixed order, and a new one is proposed
while others still run, as in a real search; an epoch costs 1 for every worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from offline.search_task import Train
from search.deciding.sampler import Sampler
from search.deciding.scheduler import Scheduler
from search.record.journal import Outcome
from spaces.space import Values


@dataclass(frozen=True)
class Replayed:
    """Holds a search's result. `best` rises: (epochs spent over all workers, best final score so far)."""

    best: list[tuple[int, float]]
    trials: int
    ends: dict[str, int]
    """It counts the trials that finished, were stopped or diverged; those that were paused at the end count
    as stopped, those that still ran count nowhere."""


@dataclass
class _ReplayedTrial:
    number: int
    curve: Iterator[float]
    own: bool
    scores: dict[int, float] = field(default_factory=dict)


class Replay:
    """Runs one search. `own`, if any, is the first trial, and is never pruned.

    `epochs` are those of a whole training; `first` is the number of the first trial that the sampler draws
    where there is no own one.
    """

    def __init__(
        self,
        train: Train,
        epochs: int,
        sampler: Sampler,
        scheduler: Scheduler,
        own: Values | None = None,
        first: int = 0,
    ) -> None:
        self._train = train
        self._epochs = epochs
        self._sampler = sampler
        self._scheduler = scheduler
        self._own = own
        self._next = first
        self._trials = 0
        self._paused: dict[int, _ReplayedTrial] = {}
        self._best: list[tuple[int, float]] = []
        self._ends: Counter[str] = Counter()

    def run(self, budget: int, workers: int) -> Replayed:
        """Searches until `budget` epochs are trained; trials that still run then do not count."""
        running: list[_ReplayedTrial | None] = [None] * workers
        for spent in range(1, budget + 1):
            worker = (spent - 1) % workers
            trial = running[worker] or self._propose()
            end = self._advance(trial)
            running[worker] = trial if end is None else None
            if end == "stopped" and self._scheduler.pauses:
                self._paused[trial.number] = trial
                self._sampler.tell(trial.number, end, trial.scores)
            elif end is not None:
                self._settle(trial, end, spent)
        self._ends.update("stopped" for _ in self._paused)
        return Replayed(self._best, self._trials, dict(self._ends))

    def _propose(self) -> _ReplayedTrial:
        rungs = {number: max(trial.scores) for number, trial in self._paused.items()}
        promoted = self._scheduler.promoted(rungs)
        return self._new() if promoted is None else self._paused.pop(promoted)

    def _new(self) -> _ReplayedTrial:
        number, own = self._next, self._own
        self._next, self._own = number + 1, None
        trained = self._train(self._sampler.ask(number) if own is None else own)
        self._sampler.add(number, trained.values)
        self._trials += 1
        return _ReplayedTrial(number, iter(trained.curve), own is not None)

    def _advance(self, trial: _ReplayedTrial) -> Outcome | None:
        """Trains an epoch; returns how it ends or pauses the trial, as the product's ledger decides."""
        epoch = len(trial.scores) + 1
        score = next(trial.curve, None)
        if score is None:
            return "diverged"
        trial.scores[epoch] = score
        goes_on = self._scheduler.report(trial.number, epoch, score, exempt=trial.own)
        if epoch >= self._epochs:
            return "finished"
        return None if goes_on else "stopped"

    def _settle(self, trial: _ReplayedTrial, end: Outcome, spent: int) -> None:
        self._ends[end] += 1
        self._sampler.tell(trial.number, end, trial.scores)
        if end == "finished":
            score = trial.scores[self._epochs]
            if not self._best or score > self._best[-1][1]:
                self._best.append((spent, score))
