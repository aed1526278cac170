"""Defines the default sampler: it begins where priors say, then goes where trials at all rungs say.

It has four ways to draw a trial:

* evenly, one trial in `EVEN_EVERY`, always: a search of n trials holds a random search of n / EVEN_EVERY, so
  a wrong prior, or a model that is stuck, costs at most that factor, in trials;
* from the priors: the share of these draws falls as trials come in (after piBO's beta / n, Hvarfner et al.,
  arXiv 2204.11051, section 3.2) and with the evidence against the priors;
* by mutation: one of the best trials at the highest rung is changed (`search.deciding.cube`);
* by the model: where a Gaussian process expects the largest improvement (`search.deciding.acquisition`),
  weighed by the priors, less and less.

docs/decisions/0034 says why, and what it is worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from search.deciding.acquisition import Acquisition
from search.deciding.beliefs import EVEN_EVERY, UNDIMINISHED, belief, draw, is_likeliest, trust
from search.deciding.cube import Cube, CubeRows, mutations
from search.deciding.observations import Observations, incumbents
from search.deciding.pairwise import wins
from search.deciding.sampler import Sampler, seed_of_trial
from search.record.journal import TrialEnd
from spaces.domains import Value
from spaces.space import Space
from trainable.recipe.metrics import Mode

# what draws trials once there is something to learn from: both, the one or the other
Learns = Literal["auto", "mutation", "gp"]
# the share of mutations among the trials that are drawn neither evenly nor from the priors
BY_MUTATION: dict[Learns, float] = {"auto": 0.2, "mutation": 1.0, "gp": 0.0}

STARTUP = 10  # before so many trials were told of, neither a model nor mutation draws
# the priors' share of trials not drawn evenly, as long as no trial speaks against the priors
FIRST_SHARE = 0.5
# a mutation moves a number by a normal step of this standard deviation, as a share of its range. It is drawn
# again, so often at most, until no trial has its values
STEP, TRIES = 0.2, 10
# the model's improvement is multiplied by the priors' density, to the power of this over the number of trials
# (piBO, section 3.2)
PRIOR_WEIGHT = 10.0

DrawWay = Literal["likeliest", "prior", "even", "mutation", "model"]


class AutoSampler(Sampler):
    """A sampler that draws evenly, from the priors, by mutation and by a model; without priors (`believes` is
    false) in the other three ways.

    Trial 0 is the documented recipe. So the first trial that is drawn has the priors' likeliest values, as
    PriorBand's first trial has (Mallik et al., arXiv 2306.12370), unless that is the same recipe, or a
    person's first trial was."""

    def __init__(
        self,
        space: Space,
        seed: int,
        direction: Mode,
        *,
        learns: Learns = "auto",
        believes: bool = True,
        by_time: bool = False,
    ) -> None:
        self._space = space
        self._seed = seed
        self._by_mutation = BY_MUTATION[learns]
        self._believes = believes
        self._cube = Cube(space)
        self._observations = Observations(self._cube, direction)
        self._acquisition = Acquisition(self._cube, self._observations, by_time=by_time)
        # whether a trial has the priors' likeliest values, or there are none
        self._has_likeliest = not believes or is_likeliest(space, space.own)
        self._values: dict[int, Mapping[str, Value]] = {}
        self._beliefs: dict[int, float] = {}  # how likely the priors make each trial that was told of
        self._trust: float | None = None  # what `trust` returns; None where something was told since

    def ask(self, number: int) -> dict[str, Value]:
        rng = np.random.default_rng((seed_of_trial(self._seed, number), number))
        way = self.way(number, *rng.random(2))
        match way:
            case "likeliest" | "prior" | "even":
                return draw(self._space, way, rng)
            case "mutation":
                best = incumbents(self._observations.observed)
                parent = best[int(rng.integers(len(best)))]
                rows = mutations(self._cube, parent.row, STEP, TRIES, rng)
                return self._cube.values(rows[np.argmax(self._observations.are_new(rows))])
            case "model":
                return self._promising(rng)
            case _:
                assert_never(way)

    def add(self, number: int, values: Mapping[str, Value]) -> None:
        self._values[number] = values
        self._observations.add(number, values)
        self._has_likeliest = self._has_likeliest or is_likeliest(self._space, values)

    def report(self, number: int, scores: Mapping[int, float], seconds: float | None = None) -> None:
        self._trust = None
        self._observations.report(number, scores, seconds)

    def tell(
        self,
        number: int,
        outcome: TrialEnd,
        scores: Mapping[int, float],
        excesses: Mapping[str, float] | None = None,
        seconds: float | None = None,
    ) -> None:
        self._trust = None
        self._observations.tell(number, outcome, scores, excesses or {}, seconds)

    def way(self, number: int, by_prior: float, by_mutation: float) -> DrawWay:
        """Decide how a trial is drawn; the fractions in [0, 1) decide for or against the priors, and
        mutation."""
        if not self._has_likeliest:
            return "likeliest"
        if number % EVEN_EVERY == EVEN_EVERY - 1 or len(self._cube) == 0:
            return "even"
        if by_prior < self.prior_share():
            return "prior"
        observed = self._observations.observed
        if len(observed) < STARTUP:
            return "even"
        return "mutation" if by_mutation < self._by_mutation and incumbents(observed) else "model"

    def prior_share(self) -> float:
        """Return the probability that a trial which is not drawn evenly is drawn from the priors."""
        decay = min(1.0, UNDIMINISHED / max(len(self._observations.observed), 1))
        return FIRST_SHARE * decay * self.trust()

    def trust(self) -> float:
        """Return how far the trials support the priors, in [0, 1]; 0 where there are none.

        Trials are compared in pairs at equal epochs: the documented recipe trains to its end, and the first
        trials pass the rungs, whatever they are worth.
        """
        if not self._believes:
            return 0.0
        if self._trust is None:
            numbers = [each.trial for each in self._observations.observed]
            for number in numbers:
                if number not in self._beliefs:
                    self._beliefs[number] = belief(self._space, self._values[number])
            beliefs = [self._beliefs[number] for number in numbers]
            self._trust = 1.0
            if numbers:
                self._trust = trust(beliefs, wins(self._observations.score_table().by_level()))
        return self._trust

    def _promising(self, rng: np.random.Generator) -> dict[str, Value]:
        """Return the candidate that promises most by the model and the priors."""
        weight = PRIOR_WEIGHT / len(self._observations.observed) * self.trust()

        def weigh(rows: CubeRows) -> NDArray[np.float64]:
            return weight * np.array([belief(self._space, self._cube.values(row)) for row in rows])

        found = self._acquisition.candidates(rng, weigh if weight > 0.0 else None)
        return self._cube.values(found.rows[found.best(1)[0]])
