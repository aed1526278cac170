"""A sampler that begins where priors say and leaves them where the trials say otherwise.

It has three ways to draw a trial:

* from the priors: the share of these draws falls as trials come in (after piBO's beta / n, Hvarfner et al.,
  arXiv 2204.11051, section 3.2) and with the evidence against the priors: as in PriorBand (Mallik et al.,
  arXiv 2306.12370, section 4) it is decided by how likely the priors find the better trials, against the
  worse;
* by Optuna's TPE, which learns from all trials whatever their origin;
* evenly, one trial in `EVEN_EVERY`, always: whatever the priors say, a search of n trials holds a random
  search of n / EVEN_EVERY, so a wrong prior costs at most that factor.

Why so, and what it is worth: docs/decisions/0008.
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
from spaces.domains import Choice, Domain, SpaceError, Value, value_at
from spaces.priors import Prior, density, drawn, mode
from spaces.space import Space
from trainable.training.metrics import Mode

FIRST_SHARE = 0.9
"""The priors' share of trials not drawn evenly, as long as nothing speaks against the priors."""
UNDIMINISHED = 20
"""Trials after which the priors' share begins to fall, as their number over all."""
EVEN_EVERY = 5
SAME = 1e-6
"""Values nearer than this part of a range are one."""

Way = Literal["mode", "prior", "tpe", "even"]
Rank = tuple[int, int, float]
"""Sorts trials, the best first."""


class PriorTpeSampler(Sampler):
    """Draws from the priors, by TPE and evenly; meant for spaces of which something is believed.

    Trial 0 is the documents' own recipe, so trial 1 is the priors' mode, as PriorBand's first, unless that is
    the same recipe.
    """

    def __init__(self, space: Space, seed: int, mode: Mode) -> None:
        self._space = space
        self._seed = seed
        self._mode = mode
        self._tpe = TpeSampler(space, seed, mode)
        self._number_of_mode = None if _own_is_the_mode(space) else 1
        self._domains = {each.name: each.domain for each in space.dimensions}
        self._values: list[Mapping[str, Value]] = []
        self._ended: dict[int, tuple[Rank, float]] = {}
        """The rank and the belief of each trial that TPE learns from."""

    def ask(self, number: int) -> dict[str, Value]:
        chance = np.random.default_rng((seed_of_trial(self._seed, number), number))
        way = self.way(number, chance.random())
        if way == "tpe":
            return self._tpe.ask(number)
        return self._space.define(lambda dimension, prior: _drawn_by(way, dimension.domain, prior, chance))

    def add(self, number: int, values: Mapping[str, Value]) -> None:
        self._tpe.add(number, values)
        self._values.append(values)

    def tell(self, number: int, outcome: Outcome, scores: Mapping[int, float]) -> None:
        self._tpe.tell(number, outcome, scores)
        named = self._space.named(self._values[number])
        inside = all(value in self._domains[name] for name, value in named.items())
        rank = rank_of(outcome, scores, self._mode)
        if inside and rank is not None:
            self._ended[number] = rank, self._belief(self._values[number], named)

    def way(self, number: int, chance: float) -> Way:
        """Decide how a trial is drawn; `chance` in [0, 1) decides between the priors and TPE."""
        if number == self._number_of_mode:
            return "mode"
        if number % EVEN_EVERY == EVEN_EVERY - 1:
            return "even"
        return "prior" if chance < self.prior_share() else "tpe"

    def prior_share(self) -> float:
        """The chance in [0, 1] that a trial which is not drawn evenly is drawn from the priors."""
        best_first = [belief for _, (_, belief) in sorted(self._ended.items(), key=_rank_then_number)]
        decay = min(1.0, UNDIMINISHED / max(len(best_first), 1))
        return FIRST_SHARE * decay * trust(best_first)

    def _belief(self, values: Mapping[str, Value], named: Mapping[str, Value]) -> float:
        """How likely the priors find a trial, as a logarithm against even draws."""
        densities = (
            density(self._domains[name], prior, named[name])
            for name, prior in self._space.beliefs(values).items()
        )
        return sum(math.log(max(each, math.ulp(0.0))) for each in densities)


def trust(beliefs: Sequence[float]) -> float:
    """How far the trials leave the priors standing, in [0, 1]; `beliefs` are theirs, the best trial's first.

    1 as long as better trials are not less likely under the priors than worse ones; else twice the chance of
    a rank correlation at least so low if the two had nothing to do with each other.
    """
    if len(beliefs) < 4 or len(set(beliefs)) == 1:
        return 1.0
    correlation = float(spearmanr(beliefs, np.arange(len(beliefs), 0, -1)).statistic)
    return min(1.0, 2.0 * float(norm.cdf(correlation * math.sqrt(len(beliefs) - 1))))


def rank_of(outcome: Outcome, scores: Mapping[int, float], mode: Mode) -> Rank | None:
    """Where a trial stands as TPE ranks it; None for one that TPE ignores.

    Finished trials come first, by their score, then stopped ones by how far they came and by their score
    there, then those without any score.
    """
    sign = -1.0 if mode == "max" else 1.0
    match outcome:
        case "failed":
            return None
        case "finished":
            return 0, 0, sign * scores[max(scores)]
        case "stopped" if scores:
            return 1, -max(scores), sign * scores[max(scores)]
        case "stopped" | "diverged":
            return 2, 0, 0.0


def _rank_then_number(ended: tuple[int, tuple[Rank, float]]) -> tuple[Rank, int]:
    number, (rank, _) = ended
    return rank, number


def _drawn_by(
    way: Literal["mode", "prior", "even"], domain: Domain, prior: Prior, chance: np.random.Generator
) -> Value:
    """The value of a dimension; of a domain with one option, without use of the chance."""
    if isinstance(domain, Choice) and len(domain.options) == 1:
        return domain.options[0]
    fraction = float(chance.random())
    match way:
        case "mode":
            return mode(domain, prior)
        case "prior":
            return drawn(domain, prior, fraction)
        case "even":
            return value_at(domain, fraction)


def _own_is_the_mode(space: Space) -> bool:
    likeliest = space.encode(space.define(lambda dimension, prior: mode(dimension.domain, prior)))
    try:
        own = space.encode(space.own)
    except SpaceError:  # a documents' value may lie outside of what is searched
        return False
    return own.keys() == likeliest.keys() and all(abs(own[name] - likeliest[name]) < SAME for name in own)
