"""A search in simulated time over known curves, whoever decides: the product or a peer.

Workers train side by side, one epoch each in turn. So trials end in mixed order, and a new one is proposed
while others still run, as in a real search; an epoch costs 1 for every worker. A trial that a search goes on
with later continues from its last epoch and pays only for the epochs that it lacks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from offline.search_task import Train
from search.record.journal import TrialEnd
from spaces.domains import Values


@dataclass(frozen=True)
class Replayed:
    """A search's result. `best` rises: (epochs spent over all workers, best final score so far)."""

    best: list[tuple[int, float]]
    trials: int
    ends: dict[str, int]  # those paused at the end count as stopped, those that still ran nowhere


@dataclass
class _ReplayedTrial:
    number: int
    curve: Iterator[float]
    scores: dict[int, float] = field(default_factory=dict)
    outcome: TrialEnd | None = None


class Search(ABC):
    """A search whose trials are trained as it asks; `epochs` are those of a whole training."""

    def __init__(self, train: Train, epochs: int) -> None:
        self._train = train
        self._epochs = epochs
        self._trials: dict[int, _ReplayedTrial] = {}
        self._best: list[tuple[int, float]] = []

    @abstractmethod
    def ask(self) -> tuple[int, Values]:
        """Return the number and the values of the trial that a free worker trains next.

        It may be one that was stopped before; then the values are not read.
        """

    @abstractmethod
    def begin(self, number: int, values: Values) -> None:
        """Hear the true values of a new trial: a table's row differs from what was asked for."""

    @abstractmethod
    def report(self, number: int, epoch: int, score: float) -> bool:
        """Hear a score, higher is better; return whether the trial trains on."""

    @abstractmethod
    def end(self, number: int, outcome: TrialEnd, scores: Mapping[int, float]) -> None:
        """Hear why a trial has left its worker, and its scores by epoch."""

    def run(self, budget: int, workers: int) -> Replayed:
        """Search until `budget` epochs are trained; trials that still run then do not count."""
        running: list[_ReplayedTrial | None] = [None] * workers
        for spent in range(1, budget + 1):
            worker = (spent - 1) % workers
            trial = running[worker] or self._next()
            self._advance(trial, spent)
            running[worker] = trial if trial.outcome is None else None
        outcomes = [trial.outcome for trial in self._trials.values()]
        return Replayed(self._best, len(outcomes), dict(Counter(each for each in outcomes if each)))

    def _next(self) -> _ReplayedTrial:
        number, values = self.ask()
        trial = self._trials.get(number)
        if trial is None:
            trained = self._train(values)
            self.begin(number, trained.values)
            trial = self._trials[number] = _ReplayedTrial(number, iter(trained.curve))
        elif trial.outcome != "stopped":
            raise ValueError(f"trial {number} is asked for again, but it is {trial.outcome or 'running'}")
        trial.outcome = None
        return trial

    def _advance(self, trial: _ReplayedTrial, spent: int) -> None:
        """Train an epoch, and end the trial as the product's ledger decides."""
        epoch = len(trial.scores) + 1
        score = next(trial.curve, None)
        if score is None:
            trial.outcome = "diverged"
        else:
            trial.scores[epoch] = score
            goes_on = self.report(trial.number, epoch, score)
            if epoch >= self._epochs:
                trial.outcome = "finished"
                if not self._best or score > self._best[-1][1]:
                    self._best.append((spent, score))
            elif not goes_on:
                trial.outcome = "stopped"
        if trial.outcome is not None:
            self.end(trial.number, trial.outcome, trial.scores)
