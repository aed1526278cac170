"""A search by Syne Tune: ASHA, BOHB (ASHA with kernel densities, arXiv 1807.01774) or MOBSTER (ASHA with a
Gaussian process over all rungs, arXiv 2003.10865).

    python -m offline.peers.syne_tune ASHA | BOHB | MOBSTER

Schedulers are called as Syne Tune's own Tuner calls them, and stop trials, as is their default. They know no
conditions: they always draw all dimensions, and what does not exist with the others is left out of the
training. Syne Tune 0.13 was the last with MOBSTER. BOHB's kernel densities leave ranges now and then (52 for
a whole number from 64 to 1,024); such a value is moved to the range's end.
"""

from __future__ import annotations

import sys
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
from syne_tune.backend.trial_status import Trial
from syne_tune.config_space import choice, lograndint, loguniform, randint, uniform
from syne_tune.optimizer import baselines
from syne_tune.optimizer.scheduler import SchedulerDecision

from offline.peers.serving import Asked, Dimension, Peer, Values, serve

CURRENT_WORDS = {"time_attr": "epoch", "do_minimize": False}
WORDS_UP_TO_0_13 = {"resource_attr": "epoch", "mode": "max"}


class SyneTune(Peer):
    """A search by one of the three."""

    def __init__(self, kind: str, asked: Asked) -> None:
        np.random.seed(asked.seed)  # brackets are drawn from it
        self._older = kind == "MOBSTER"
        self._scheduler = getattr(baselines, kind)(
            {each.name: _domain(each) for each in asked.dimensions},
            metric="score",
            max_t=asked.epochs,
            grace_period=asked.grace,
            reduction_factor=asked.factor,
            random_seed=asked.seed % 2**31,
            **(WORDS_UP_TO_0_13 if self._older else CURRENT_WORDS),
        )
        self._dimensions = asked.dimensions
        self._trials: list[Trial] = []

    def ask(self) -> tuple[int, Values]:
        number = len(self._trials)
        suggestion = self._scheduler.suggest(*([number] if self._older else []))
        config = {each.name: _within(each, suggestion.config[each.name]) for each in self._dimensions}
        trial = Trial(number, config, datetime.now())
        self._trials.append(trial)
        self._scheduler.on_trial_add(trial)
        return number, trial.config

    def report(self, number: int, epoch: int, score: float) -> bool:
        trial = self._trials[number]
        decision = self._scheduler.on_trial_result(trial, {"score": score, "epoch": epoch})
        if decision == SchedulerDecision.CONTINUE:
            return True
        self._scheduler.on_trial_remove(trial)
        return False

    def diverged(self, number: int) -> None:
        self._scheduler.on_trial_error(self._trials[number])


def _domain(dimension: Dimension) -> Any:
    match dimension.kind:
        case "float":
            return (loguniform if dimension.log else uniform)(dimension.low, dimension.high)
        case "integer":
            return (lograndint if dimension.log else randint)(int(dimension.low), int(dimension.high))
        case "choice":
            return choice(dimension.options)


def _within(dimension: Dimension, value: float) -> float:
    return min(max(value, dimension.low), dimension.high)


if __name__ == "__main__":
    serve(partial(SyneTune, sys.argv[1]))
