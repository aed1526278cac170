"""A sampler for Optuna that begins where priors say and leaves them where the trials say otherwise.

It mixes three ways to propose a trial:

* draws from the prior, whose share falls as trials come in (after piBO's beta / n, Hvarfner et al., arXiv
  2204.11051, section 3.2) and with the evidence against the prior: as in PriorBand (Mallik et al., arXiv
  2306.12370, section 4) it is decided by how likely the prior finds the better trials, against the worse;
* Optuna's TPE, which learns from all trials whatever their origin;
* even draws, one trial in `EVEN_EVERY`, always: whatever the prior says, a search of n trials holds a random
  search of n / EVEN_EVERY, so a wrong prior costs at most that factor.

Imported only where a search samples: Optuna takes half a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from scipy.stats import norm, spearmanr

from spaces.domains import Choice, Domain, Float, Integer, value_at
from spaces.priors import Prior, density, drawn, mode

PriorOf = Callable[[str, Mapping[str, Any]], Prior]
"""What is believed of a parameter, given those of the trial that were drawn before it."""

FIRST_SHARE = 0.9
"""Of trials not drawn evenly, as long as nothing speaks against the prior."""
UNDIMINISHED = 20
"""Trials after which the prior's share begins to fall, as their number over all."""
EVEN_EVERY = 5

Way = Literal["mode", "prior", "tpe", "even"]


class PriorTpeSampler(BaseSampler):
    """Draws from the prior, from `tpe` and evenly; a function of the seed, the trial's number and the study.

    Trial `mode_at`, if there is to be one, is the prior's mode, as PriorBand's first. Parameters with steps
    are drawn evenly when it is not `tpe`'s turn. Meant for studies of which something is believed.
    """

    def __init__(self, prior: PriorOf, tpe: BaseSampler, *, seed: int, mode_at: int | None = 0) -> None:
        self._prior = prior
        self._tpe = tpe
        self._seed = seed
        self._mode_at = mode_at
        self._even = RandomSampler(seed=seed)
        self._ways: dict[int, Way] = {}
        self._chances: dict[int, np.random.Generator] = {}

    def reseed_rng(self) -> None:
        """Nothing of ours to reseed: a draw depends on the trial's number."""
        self._tpe.reseed_rng()
        self._even.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Decide how this trial is drawn."""
        chance = np.random.default_rng((self._seed, trial.number))
        self._chances[trial.number] = chance
        self._ways[trial.number] = self._way(study, trial.number, chance.random())
        self._tpe.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self._ways.pop(trial.number, None)
        self._chances.pop(trial.number, None)
        self._tpe.after_trial(study, trial, state, values)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        if self._ways[trial.number] != "tpe":
            return {}
        return self._tpe.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._tpe.sample_relative(study, trial, search_space) if search_space else {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        way = self._ways[trial.number]
        if way == "tpe":
            return self._tpe.sample_independent(study, trial, param_name, param_distribution)
        domain = domain_of(param_distribution)
        if domain is None:
            return self._even.sample_independent(study, trial, param_name, param_distribution)
        fraction = float(self._chances[trial.number].random())
        prior = self._prior(param_name, trial.params)
        match way:
            case "mode":
                return mode(domain, prior)
            case "prior":
                return drawn(domain, prior, fraction)
            case "even":
                return value_at(domain, fraction)

    def prior_share(self, study: Study) -> float:
        """The chance in [0, 1] that a trial which is not drawn evenly is drawn from the prior."""
        told = ranked(study.get_trials(deepcopy=False), study.direction)
        decay = min(1.0, UNDIMINISHED / max(len(told), 1))
        return FIRST_SHARE * decay * trust([self._belief(trial) for trial in told])

    def _way(self, study: Study, number: int, chance: float) -> Way:
        if number == self._mode_at:
            return "mode"
        if number % EVEN_EVERY == EVEN_EVERY - 1:
            return "even"
        return "prior" if chance < self.prior_share(study) else "tpe"

    def _belief(self, trial: FrozenTrial) -> float:
        """How likely the prior finds a trial, as a logarithm against even draws."""
        total = 0.0
        before: dict[str, Any] = {}
        for name, value in trial.params.items():
            prior, domain = self._prior(name, before), domain_of(trial.distributions[name])
            if domain is not None:
                total += math.log(max(density(domain, prior, value), math.ulp(0.0)))
            before[name] = value
        return total


def trust(beliefs: Sequence[float]) -> float:
    """How far the trials leave the prior standing, in [0, 1]; `beliefs` are theirs, the best trial's first.

    1 as long as better trials are not less likely under the prior than worse ones; else twice the chance of
    a rank correlation at least so low if the two had nothing to do with each other.
    """
    if len(beliefs) < 4 or len(set(beliefs)) == 1:
        return 1.0
    correlation = float(spearmanr(beliefs, np.arange(len(beliefs), 0, -1)).statistic)
    return min(1.0, 2.0 * float(norm.cdf(correlation * math.sqrt(len(beliefs) - 1))))


def ranked(trials: Sequence[FrozenTrial], direction: StudyDirection) -> list[FrozenTrial]:
    """The trials that are over and have parameters, best first, as TPE ranks them.

    Complete ones by value, then pruned ones by how far they came and by their value there, then those that
    were pruned before they had any.
    """
    sign = -1.0 if direction == StudyDirection.MAXIMIZE else 1.0

    def key(trial: FrozenTrial) -> tuple[int, int, float]:
        if trial.state == TrialState.COMPLETE:
            assert trial.value is not None
            return 0, 0, sign * trial.value
        if not trial.intermediate_values:
            return 2, 0, 0.0
        step = max(trial.intermediate_values)
        return 1, -step, sign * trial.intermediate_values[step]

    over = (TrialState.COMPLETE, TrialState.PRUNED)
    return sorted((each for each in trials if each.state in over and each.params), key=key)


def domain_of(distribution: BaseDistribution) -> Domain | None:
    """Optuna's distribution as a domain of ours; None for one with steps."""
    match distribution:
        case FloatDistribution(step=None):
            return Float(distribution.low, distribution.high, log=distribution.log)
        case IntDistribution(step=1):
            return Integer(distribution.low, distribution.high, log=distribution.log)
        case CategoricalDistribution():
            return Choice(tuple(distribution.choices))
        case _:
            return None
