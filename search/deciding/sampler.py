"""Which values the next trial gets: Optuna's TPE, or points that need no history.

A draw is a function of the seed, the trial's number and what the earlier trials were told; nothing is kept
between draws. So a search that was killed and rebuilt draws what one that never stopped would have drawn, and
so does a search in another process: same seed and same order of results, same trials.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, assert_never

from search.record.journal import Outcome
from spaces.concentration import concentration
from spaces.domains import Choice, Domain, Float, Integer, SpaceError, Value
from spaces.priors import Prior, mode
from spaces.space import Dimension, Space
from trainable.training.metrics import Mode

if TYPE_CHECKING:  # Optuna takes 0.4 s to import, scipy's part 0.2 s: too long for `--help`
    import optuna
    from optuna.distributions import BaseDistribution

STARTUP_TRIALS = 10
"""Trials drawn at random before TPE models anything: Optuna's own default."""

NO_BITS = 1e-9
"""Of the space's `concentration`: sums of logarithms are not 0 to the last bit."""
SAME = 1e-6
"""Of a range: values nearer than this are one."""

Kind = Literal["prior-tpe", "tpe", "random", "qmc"]


class Sampler(ABC):
    """Draws the values of trials; trial numbers count from 0 without gaps."""

    @abstractmethod
    def ask(self, number: int) -> dict[str, Value]:
        """The values of a new trial by dotted path; asking changes nothing."""

    @abstractmethod
    def add(self, number: int, values: Mapping[str, Value]) -> None:
        """A trial exists with these values and has not ended: TPE keeps away from it."""

    @abstractmethod
    def tell(self, number: int, outcome: Outcome, scores: Mapping[int, float]) -> None:
        """A trial has ended; `scores` are its objective by epoch."""


def make_sampler(space: Space, kind: Kind, seed: int, mode: Mode) -> Sampler:
    """The sampler of a study; `mode` says whether the objective is maximised or minimised."""
    match kind:
        case "prior-tpe":
            return PriorTpe(space, seed, mode)
        case "tpe":
            return TpeSampler(space, seed, mode)
        case "random":
            return RandomSampler(space, seed)
        case "qmc":
            return SobolSampler(space, seed)


class PointSampler(Sampler):
    """Maps points of the unit cube, one coordinate a dimension, through the priors; learns nothing.

    A dimension that a trial does not have leaves its coordinate unused.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed

    @abstractmethod
    def point(self, number: int, size: int) -> list[float]:
        """The trial's point in [0, 1)^size."""

    def ask(self, number: int) -> dict[str, Value]:
        names = [dimension.name for dimension in self._space.dimensions]
        fractions = dict(zip(names, self.point(number, len(names)), strict=True))
        return self._space.sample(lambda dimension: fractions[dimension.name])

    def add(self, number: int, values: Mapping[str, Value]) -> None:
        """Nothing to remember."""

    def tell(self, number: int, outcome: Outcome, scores: Mapping[int, float]) -> None:
        """Nothing to learn."""


class RandomSampler(PointSampler):
    """Independent uniform points."""

    def point(self, number: int, size: int) -> list[float]:
        import numpy as np

        point: list[float] = np.random.default_rng((self._seed, number)).random(size).tolist()
        return point


class SobolSampler(PointSampler):
    """A scrambled Sobol sequence, which fills the cube more evenly (Owen 1998, J. Complexity 14).

    Optuna's QMCSampler keeps its place in the study and leaves conditional dimensions to random draws; here
    the place is the trial's number, and every dimension has a coordinate. Trial 0 is the documents' own
    recipe, so trial 1 takes the sequence's first point.
    """

    def point(self, number: int, size: int) -> list[float]:
        from scipy.stats import qmc

        if size == 0:
            return []
        sequence = qmc.Sobol(size, scramble=True, rng=self._seed)
        if number > 1:  # SciPy cannot go forward by none
            sequence.fast_forward(number - 1)
        point: list[float] = sequence.random(1)[0].tolist()
        return point


class TpeSampler(Sampler):
    """Optuna's multivariate TPE (Watanabe, arXiv 2304.11127) over a study in memory, rebuilt at each draw.

    Dimensions that appear together are modelled together (`group`): in a conditional space a joint model of
    all trials would hold only what every trial has. On a space of two optimizers, each with a rate and a
    decay of its own, the best of 16 draws was 0.67 against 0.78 without groups, of 64 draws 0.059 against
    0.061 (medians of 60 seeds, lower is better).

    How trials are told:

    * finished: COMPLETE, with the last value; stopped: PRUNED, with the values by epoch. TPE ranks every
      pruned trial behind the complete ones, longer-lived ones first, so it never compares different epochs.
    * diverged: PRUNED without values, which ranks last. Told as FAIL, TPE would not learn from it: measured
      on a space of which half diverges, 91 % of later draws fell into that half, against 44 %.
    * failed: FAIL, which TPE ignores: a crash says nothing about the values.
    * A trial with a value outside its domain (the documents' own recipe may have one) is no point of this
      space, and a TPE kernel there may be undefined (log 0): it is told as FAIL without parameters.
    """

    def __init__(self, space: Space, seed: int, mode: Mode) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it announces every study that it creates
        self._space = space
        self._seed = seed
        self._mode = mode
        self._dimensions = {each.name: each for each in space.dimensions}
        self._domains = {each.name: each.domain for each in space.dimensions}
        self._values: list[Mapping[str, Value]] = []
        self._trials: list[optuna.trial.FrozenTrial] = []

    def ask(self, number: int) -> dict[str, Value]:
        trial = self.study(number).ask()
        return self._space.define(lambda dimension, _: _suggest(trial, dimension))

    def add(self, number: int, values: Mapping[str, Value]) -> None:
        from optuna.trial import TrialState

        self._values.append(values)
        self._trials.append(self._frozen(number, TrialState.RUNNING))

    def tell(self, number: int, outcome: Outcome, scores: Mapping[int, float]) -> None:
        from optuna.trial import TrialState

        match outcome:
            case "finished":
                told = self._frozen(number, TrialState.COMPLETE, scores, scores[max(scores)])
            case "stopped":
                told = self._frozen(number, TrialState.PRUNED, scores)
            case "diverged":
                told = self._frozen(number, TrialState.PRUNED)
            case "failed":
                told = self._frozen(number, TrialState.FAIL)
        self._trials[number] = told

    def study(self, number: int) -> optuna.Study:
        """A new study that holds what is known, with a sampler seeded for this trial alone.

        Building it takes 7 ms at 100 trials and 75 ms at 1,000.
        """
        import numpy as np
        import optuna

        seed = int(np.random.SeedSequence((self._seed, number)).generate_state(1)[0])
        study = optuna.create_study(
            sampler=self._sampler(seed), direction="maximize" if self._mode == "max" else "minimize"
        )
        study.add_trials(self._trials)
        return study

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        import optuna

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=STARTUP_TRIALS, multivariate=True, group=True, constant_liar=True
            )

    def _frozen(
        self,
        number: int,
        state: optuna.trial.TrialState,
        scores: Mapping[int, float] | None = None,
        value: float | None = None,
    ) -> optuna.trial.FrozenTrial:
        """The trial as Optuna's record; one outside the space keeps its number and nothing else."""
        from optuna.trial import TrialState, create_trial

        params = self._space.named(self._values[number])
        if not all(value in self._domains[name] for name, value in params.items()):
            return create_trial(state=TrialState.FAIL)
        return create_trial(
            state=state,
            value=value,
            params=params,
            distributions={name: distribution(self._domains[name]) for name in params},
            intermediate_values=dict(scores or {}),
        )


class PriorTpe(TpeSampler):
    """TPE that begins with the space's priors: `search.deciding.prior_tpe`, told what TPE is told.

    Trial 0 is the documents' own recipe, so trial 1 is the priors' mode, unless that is the same recipe. In a
    space of which nothing is believed it is TPE.
    """

    def __init__(self, space: Space, seed: int, mode: Mode) -> None:
        super().__init__(space, seed, mode)
        self._believes = concentration(space) > NO_BITS
        self._mode_at = None if _own_is_the_mode(space) else 1

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        from search.deciding.prior_tpe import PriorTpeSampler

        tpe = super()._sampler(seed)
        if not self._believes:
            return tpe
        return PriorTpeSampler(self._prior, tpe, seed=seed, mode_at=self._mode_at)

    def _prior(self, name: str, named: Mapping[str, Value]) -> Prior:
        dimension = self._dimensions[name]
        return dimension.prior({self._dimensions[each].path: value for each, value in named.items()})


def _own_is_the_mode(space: Space) -> bool:
    likeliest = space.encode(space.define(lambda dimension, prior: mode(dimension.domain, prior)))
    try:
        own = space.encode(space.own)
    except SpaceError:  # a documents' value may lie outside of what is searched
        return False
    return own.keys() == likeliest.keys() and all(abs(own[name] - likeliest[name]) < SAME for name in own)


def distribution(domain: Domain) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match domain:
        case Float():
            return FloatDistribution(domain.low, domain.high, log=domain.log)
        case Integer():
            return IntDistribution(domain.low, domain.high, log=domain.log)
        case Choice():
            return CategoricalDistribution(domain.options)
        case _:
            assert_never(domain)


def _suggest(trial: optuna.Trial, dimension: Dimension) -> Value:
    match dimension.domain:
        case Float() as domain:
            return trial.suggest_float(dimension.name, domain.low, domain.high, log=domain.log)
        case Integer() as domain:
            return trial.suggest_int(dimension.name, domain.low, domain.high, log=domain.log)
        case Choice() as domain:
            return trial.suggest_categorical(dimension.name, domain.options)
        case _:
            assert_never(dimension.domain)
