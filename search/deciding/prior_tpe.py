"""Defines a sampler that begins where priors say and moves away where the trials say otherwise.

It has three ways to draw a trial:

* from the priors: the share of these draws falls as trials come in (after piBO's beta / n, Hvarfner et al.,
  arXiv 2204.11051, section 3.2) and with the evidence against the priors. As in PriorBand (Mallik et al.,
  arXiv 2306.12370, section 4), the evidence is how likely the better trials are under the priors, against
  the worse ones;
* by Optuna's TPE, which learns from all trials, however they were drawn;
* evenly, one trial in `EVEN_EVERY`, always: whatever the priors say, a search of n trials holds a
  random search of n / EVEN_EVERY, so a wrong prior costs at most that factor.

docs/decisions/0008 says why, and what it is worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from search.deciding.beliefs import (
    EVEN_EVERY,
    UNDIMINISHED,
    SortKey,
    belief,
    draw,
    is_likeliest,
    rank_of,
    trust,
)
from search.deciding.sampler import Sampler, seed_of_trial
from search.deciding.tpe import TpeSampler
from search.record.journal import TrialEnd
from search.study.objective import above_limits
from spaces.domains import Value
from spaces.space import Space
from trainable.recipe.metrics import Mode

# the priors' share of trials not drawn evenly, as long as no trial speaks against the priors
FIRST_SHARE = 0.9

TpeWay = Literal["likeliest", "prior", "tpe", "even"]


class PriorTpeSampler(Sampler):
    """A sampler that draws from the priors, by TPE and evenly; meant for spaces whose rules believe
    something.

    Trial 0 is the documented recipe. So the first trial that is drawn has the priors' likeliest values, as
    PriorBand's first trial has, unless that is the same recipe, or a person's first trial was.
    """

    def __init__(self, space: Space, seed: int, direction: Mode) -> None:
        self._space = space
        self._seed = seed
        self._direction = direction
        self._tpe = TpeSampler(space, seed, direction)
        # whether a trial has the priors' likeliest values
        self._has_likeliest = is_likeliest(space, space.own)
        self._domains = {each.name: each.domain for each in space.dimensions}
        self._values: list[Mapping[str, Value]] = []
        # the rank and the belief of each trial that TPE learns from
        self._ended: dict[int, tuple[SortKey, float]] = {}

    def ask(self, number: int) -> dict[str, Value]:
        rng = np.random.default_rng((seed_of_trial(self._seed, number), number))
        way = self.way(number, rng.random())
        if way == "tpe":
            return self._tpe.ask(number)
        return draw(self._space, way, rng)

    def add(self, number: int, values: Mapping[str, Value]) -> None:
        self._tpe.add(number, values)
        self._values.append(values)
        self._has_likeliest = self._has_likeliest or is_likeliest(self._space, values)

    def tell(
        self,
        number: int,
        outcome: TrialEnd,
        scores: Mapping[int, float],
        excesses: Mapping[str, float] | None = None,
        seconds: float | None = None,
    ) -> None:
        self._tpe.tell(number, outcome, scores, excesses)
        named = self._space.named(self._values[number])
        inside = all(value in self._domains[name] for name, value in named.items())
        rank = rank_of(outcome, scores, self._direction, above_limits(excesses or {}))
        self._ended.pop(number, None)  # what was told while it was paused
        if inside and rank is not None:
            self._ended[number] = rank, belief(self._space, self._values[number])

    def way(self, number: int, fraction: float) -> TpeWay:
        """Decide how a trial is drawn; `fraction` in [0, 1) decides between the priors and TPE."""
        if not self._has_likeliest:
            return "likeliest"
        if number % EVEN_EVERY == EVEN_EVERY - 1:
            return "even"
        return "prior" if fraction < self.prior_share() else "tpe"

    def prior_share(self) -> float:
        """Return the probability that a trial which is not drawn evenly is drawn from the priors."""
        ended = sorted((rank, number, likelihood) for number, (rank, likelihood) in self._ended.items())
        best_first = [likelihood for _, _, likelihood in ended]
        decay = min(1.0, UNDIMINISHED / max(len(best_first), 1))
        return FIRST_SHARE * decay * trust(best_first, range(len(best_first), 0, -1))
