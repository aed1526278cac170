"""Defines asynchronous successive halving with a model of all trials, which forecasts how each one ends.

Training is stopped, or kept, by a forecast of its last score as in freeze-thaw Bayesian optimization (Swersky
et al., arXiv 1406.3896). The model is that of the sampler `auto`, a Gaussian process over trials and epochs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from search.deciding.cube import Cube
from search.deciding.observations import Observations, levels_of
from search.deciding.scheduler import Asha
from search.deciding.surrogate import Surrogate
from search.record.journal import TrialEnd
from search.study import SchedulerKind
from spaces.domains import Value
from spaces.space import Space
from trainable.recipe.metrics import Mode
from trainable.training.metrics import sign_of

ENOUGH = 10  # before so many trials have ended, and one of them at its last epoch, nothing is forecast
# a trial stops where its chance to end above the best finished one is below the first (Domhan et al., IJCAI
# 2015, section 4: "predictive termination" with delta 0.05). One that ASHA would stop goes on if its chance
# is at least the second, which is ours
STOPPED, KEPT = 0.05, 0.3


class ModelAsha(Asha):
    """ASHA that keeps a trial that the model gives a good chance to end as the best.
    From the first rung on it also stops a trial after any epoch, once its chance is next to none.

    The chance depends only on what was reported and told, in this order.
    """

    kind: ClassVar[SchedulerKind] = "model"

    def __init__(self, rungs: Sequence[int], reduction_factor: int, direction: Mode, space: Space) -> None:
        super().__init__(rungs, reduction_factor, direction)
        cube = Cube(space)
        self._observations = Observations(cube, direction)
        self._surrogate = Surrogate(cube, self._observations)
        self._sign = sign_of(direction)
        # by epoch, higher is better, of each trial that trains
        self._scores: dict[int, dict[int, float]] = {}
        self._best = -math.inf  # the best last score of a finished trial
        # the chance of each trial that was stopped by it and whose end was not told yet
        self._chances: dict[int, float] = {}

    def add(self, trial: int, values: Mapping[str, Value]) -> None:
        self._observations.add(trial, values)
        self._scores[trial] = {}

    def tell(
        self, trial: int, outcome: TrialEnd, scores: Mapping[int, float], excesses: Mapping[str, float]
    ) -> None:
        observed = self._observations.tell(trial, outcome, scores, excesses)
        self._scores.pop(trial, None)
        self._chances.pop(trial, None)
        if observed is not None and outcome == "finished":
            self._best = max(self._best, observed.scores[max(observed.scores)])

    def report(self, trial: int, epoch: int, value: float, *, exempt: bool = False) -> bool:
        goes_on = super().report(trial, epoch, value, exempt=exempt)
        if not math.isfinite(value) or trial not in self._scores:
            return goes_on
        self._scores[trial][epoch] = self._sign * value
        if exempt or epoch < min(self.rungs, default=math.inf):
            return goes_on
        chance = self._chance(trial, epoch)
        if chance is None:
            return goes_on
        goes_on = chance >= (STOPPED if goes_on else KEPT)
        if not goes_on:
            self._chances[trial] = chance
        return goes_on

    def why(self, trial: int, epoch: int) -> str:
        if (chance := self._chances.get(trial)) is None:
            return super().why(trial, epoch)
        return f"has a chance of {chance:.0%} to end as the best, by the model"

    def _chance(self, trial: int, epoch: int) -> float | None:
        """Return the chance to end above the best finished trial; None where too little is known."""
        observed, row = self._observations.observed, self._observations.row(trial)
        if len(observed) < ENOUGH or self._best == -math.inf or row is None or not len(row):
            return None
        scores = self._scores[trial]
        kept = {each: scores[each] for each in (*levels_of(observed), epoch) if each in scores}
        return self._surrogate.chance(row, kept, self._best)
