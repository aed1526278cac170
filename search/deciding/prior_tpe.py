"""Defines a sampler that begins where priors say and moves away where the trials say otherwise.

It has three ways to draw a trial:

* from the priors: the share of these draws falls as trials come in (after piBO's beta / n, Hvarfner et al.,
  arXiv 2204.11051, section 3.2) and with the evidence against the priors. As in PriorBand (Mallik et al.,
  arXiv 2306.12370, section 4), the evidence is how likely the better trials are under the priors, against
  the worse ones;
* by Optuna's TPE, which learns from all trials, however they were drawn;
* uniformly, one trial in `UNIFORM_EVERY`, always: whatever the priors say, a search of n trials holds a
  random search of n / UNIFORM_EVERY, so a wrong prior costs at most that factor.

docs/decisions/0008 says why, and what it is worth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from scipy.stats import norm, spearmanr

from search.deciding.sampler import Sampler
from search.deciding.tpe import TpeSampler, seed_of_trial
from search.record.journal import Outcome
from search.study.constraints import above_limits
from spaces.domains import Choice, Domain, SpaceError, Value, value_at
from spaces.priors import Prior, density, likeliest, quantile_value
from spaces.space import Space
from trainable.recipe.metrics import Mode
from trainable.training.metrics import sign_of

FIRST_SHARE = 0.9
"""The priors' share of trials not drawn uniformly, as long as no trial speaks against the priors."""
UNDIMINISHED = 20
"""After so many trials the priors' share begins to fall, as this number over the number of trials."""
UNIFORM_EVERY = 5
SAME = 1e-6
"""Two values count as one where they differ by less than this part of a range."""

Way = Literal["likeliest", "prior", "tpe", "uniform"]
Rank = tuple[int, int, float]
"""A key that sorts trials, the best first."""


class PriorTpeSampler(Sampler):
    """Draws from the priors, by TPE and uniformly; meant for spaces whose rules believe something.

    Trial 0 is the documented recipe. So trial 1 has the priors' likeliest values, as PriorBand's first trial
    has, unless that is the same recipe.
    """

    def __init__(self, space: Space, seed: int, direction: Mode) -> None:
        self._space = space
        self._seed = seed
        self._direction = direction
        self._tpe = TpeSampler(space, seed, direction)
        self._likeliest_number = None if _own_is_likeliest(space) else 1
        self._domains = {each.name: each.domain for each in space.dimensions}
        self._values: list[Mapping[str, Value]] = []
        self._ended: dict[int, tuple[Rank, float]] = {}
        """The rank and the belief of each trial that TPE learns from."""

    def ask(self, number: int) -> dict[str, Value]:
        rng = np.random.default_rng((seed_of_trial(self._seed, number), number))
        way = self.way(number, rng.random())
        if way == "tpe":
            return self._tpe.ask(number)
        return self._space.define(lambda dimension, prior: _drawn_by(way, dimension.domain, prior, rng))

    def add(self, number: int, values: Mapping[str, Value]) -> None:
        self._tpe.add(number, values)
        self._values.append(values)

    def tell(
        self,
        number: int,
        outcome: Outcome,
        scores: Mapping[int, float],
        excesses: Mapping[str, float] | None = None,
    ) -> None:
        self._tpe.tell(number, outcome, scores, excesses)
        named = self._space.named(self._values[number])
        inside = all(value in self._domains[name] for name, value in named.items())
        rank = rank_of(outcome, scores, self._direction, above_limits(excesses or {}))
        if inside and rank is not None:
            self._ended[number] = rank, self._belief(self._values[number], named)

    def way(self, number: int, draw: float) -> Way:
        """Decides how a trial is drawn; `draw` in [0, 1) decides between the priors and TPE."""
        if number == self._likeliest_number:
            return "likeliest"
        if number % UNIFORM_EVERY == UNIFORM_EVERY - 1:
            return "uniform"
        return "prior" if draw < self.prior_share() else "tpe"

    def prior_share(self) -> float:
        """Returns the probability that a trial which is not drawn uniformly is drawn from the priors."""
        best_first = [belief for _, (_, belief) in sorted(self._ended.items(), key=_rank_then_number)]
        decay = min(1.0, UNDIMINISHED / max(len(best_first), 1))
        return FIRST_SHARE * decay * trust(best_first)

    def _belief(self, values: Mapping[str, Value], named: Mapping[str, Value]) -> float:
        """Returns how likely the priors make a trial, as a logarithm of the ratio to uniform draws."""
        densities = (
            density(self._domains[name], prior, named[name])
            for name, prior in self._space.priors(values).items()
        )
        return sum(math.log(max(each, math.ulp(0.0))) for each in densities)


def trust(beliefs: Sequence[float]) -> float:
    """Returns how far the trials support the priors, in [0, 1]; `beliefs` holds the best trial's first.

    It is 1 as long as better trials are not less likely under the priors than worse ones. Otherwise it is
    twice the probability of a rank correlation at least so low if the two were independent.
    """
    if len(beliefs) < 4 or len(set(beliefs)) == 1:
        return 1.0
    correlation = float(spearmanr(beliefs, np.arange(len(beliefs), 0, -1)).statistic)
    return min(1.0, 2.0 * float(norm.cdf(correlation * math.sqrt(len(beliefs) - 1))))


def rank_of(
    outcome: Outcome, scores: Mapping[int, float], direction: Mode, excess: float = 0.0
) -> Rank | None:
    """Returns how TPE ranks a trial; None for one that TPE ignores.

    Finished trials come first, by their score. Then come stopped ones, by the epochs that they reached and by
    their score there, then those without any score, and last those that break constraints, by their `excess`.
    """
    sign = -sign_of(direction)
    match outcome:
        case "failed":
            return None
        case "finished":
            return 0, 0, sign * scores[max(scores)]
        case "stopped" if scores:
            return 1, -max(scores), sign * scores[max(scores)]
        case "stopped" | "diverged":
            return 2, 0, 0.0
        case "infeasible":
            return 3, 0, excess


def _rank_then_number(ended: tuple[int, tuple[Rank, float]]) -> tuple[Rank, int]:
    number, (rank, _) = ended
    return rank, number


def _drawn_by(
    way: Literal["likeliest", "prior", "uniform"], domain: Domain, prior: Prior, rng: np.random.Generator
) -> Value:
    """Returns the value of a dimension; a domain with one option uses no random number."""
    if isinstance(domain, Choice) and len(domain.options) == 1:
        return domain.options[0]
    fraction = float(rng.random())
    match way:
        case "likeliest":
            return likeliest(domain, prior)
        case "prior":
            return quantile_value(domain, prior, fraction)
        case "uniform":
            return value_at(domain, fraction)


def _own_is_likeliest(space: Space) -> bool:
    expected = space.encode(space.define(lambda dimension, prior: likeliest(dimension.domain, prior)))
    try:
        own = space.encode(space.own)
    except SpaceError:  # a value of the documents may lie outside the searched range
        return False
    return own.keys() == expected.keys() and all(abs(own[name] - expected[name]) < SAME for name in own)
