"""Searches in which each rule's worth is known: a formula draws the scores, nothing is trained.

Two workers train side by side, one epoch each in turn, under the product's own samplers and pruning. The
result is the summary that a search's journal would give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from search.deciding.make import make_sampler
from search.deciding.sampler import Sampler
from search.deciding.scheduler import Asha, rungs
from search.record.journal import EpochEvent, TrialEnd
from search.record.summary import Summary
from search.record.trials import Trial
from search.record.verdicts import VerdictWord
from search.study import SamplerKind
from spaces.domains import Choice, Domain, Float, Integer, Value, Values, fraction_of
from spaces.priors import Normal, Prior, Weights
from spaces.space import Believed, Dimension, Space, When
from tests.epoch_results import epoch_result
from trainable.recipe import Recipe

EPOCHS, GRACE, FACTOR, WORKERS = 18, 2, 3, 2
LUCK = 1.0  # the deviation of a whole training's score, and the unit of scores
EARLY_LUCK = 0.5  # the deviation that an early epoch adds; it falls to 0 at the last one
DIVERGING = 0.1  # the share of trials that diverge within the first epochs, whatever their values
METRIC = "val_accuracy"

Gain = Callable[[Values], float]  # what a trial's values, by dotted path, add to its score

_OPTIMIZER, _POLICY, _MASKING, _MIXING = (
    "optimizer.kind",
    *(f"augmentation.{part}.kind" for part in ("policy", "masking", "mixing")),
)

_SGD_RATES, _ADAMW_RATES = Float(3e-3, 10.0, log=True), Float(3e-5, 0.1, log=True)
_WARMUPS = Float(0.0, 1.8)


def nothing(values: Values) -> float:
    return 0.0


# The right verdicts on the rules that matter in a `planted` search; the others do nothing
PLANTED: dict[str, VerdictWord] = {
    "augmentation.mixing.kind": "contradicted",
    "optimizer.lr[sgd]": "supported",
    "optimizer.lr[adamw]": "supported",
    "schedule.warmup_epochs": "contradicted",
    "regularisation.label_smoothing": "supported",
}


def planted(size: float, rules: Collection[str] = tuple(PLANTED)) -> Gain:
    """Return the gain of the named rules of `PLANTED`: two of options, three of numbers, two conditional.

    `size` is how far each moves a score between the best and the worst of its values, in units of luck. With
    both rates neither optimizer is better than the other.
    """

    def gain(values: Values) -> float:
        kind, rate = values[_OPTIMIZER], values["optimizer.lr"]
        worth = {
            "augmentation.mixing.kind": values[_MIXING] != "none",
            "optimizer.lr[sgd]": _bump(_SGD_RATES, rate, 0.2) if kind == "sgd" else 0.6,
            "optimizer.lr[adamw]": _bump(_ADAMW_RATES, rate, 2e-3) if kind == "adamw" else 0.6,
            "schedule.warmup_epochs": 1.0 - _bump(_WARMUPS, values["schedule.warmup_epochs"], 1.0),
            "regularisation.label_smoothing": values["regularisation.label_smoothing"] == 0.0,
        }
        return size * sum(worth[rule] for rule in rules)

    return gain


def _bump(domain: Float, value: Value, centre: float) -> float:
    """Return 1 at the centre, falling to either side within a fifth of the domain's length."""
    distance = fraction_of(domain, value) - fraction_of(domain, centre)
    return math.exp(-((distance / 0.2) ** 2) / 2.0)


def space_of_rules() -> Space:
    """Return a space with fifteen rules: options and numbers, conditional ones, of all confidences."""
    sgd, adamw = When(_OPTIMIZER, ("sgd",)), When(_OPTIMIZER, ("adamw",))
    return Space(
        base=Recipe().with_values({"loop.epochs": EPOCHS}),
        dimensions=(
            _rule(_OPTIMIZER, Choice(("sgd", "adamw")), Weights((0.7, 0.3))),
            _rule(
                _POLICY,
                Choice(("none", "randaugment", "trivialaugment", "autoaugment")),
                Weights((0.3, 0.25, 0.3, 0.15)),
            ),
            _rule(_MASKING, Choice(("none", "erasing", "cutout")), Weights((0.5, 0.3, 0.2))),
            _rule(_MIXING, Choice(("none", "mixup", "cutmix")), Weights((0.7, 0.15, 0.15))),
            _rule("optimizer.lr", _SGD_RATES, Normal(0.2), sgd, "sgd"),
            _rule("optimizer.lr", _ADAMW_RATES, Normal(2e-3), adamw, "adamw"),
            _rule("optimizer.weight_decay", Float(1e-6, 1e-2, log=True), Normal(5e-5), sgd, "sgd"),
            _rule("optimizer.weight_decay", Float(1e-4, 1.0, log=True), Normal(0.02, "low"), adamw, "adamw"),
            _rule("optimizer.momentum", Float(0.5, 0.99), Normal(0.9, "high"), sgd),
            _rule("schedule.warmup_epochs", _WARMUPS, Normal(1.0)),
            _rule("regularisation.label_smoothing", Choice((0.0, 0.1)), Weights((0.75, 0.25))),
            _rule(
                "augmentation.policy.magnitude",
                Integer(0, 30),
                Normal(9, "low"),
                When(_POLICY, ("randaugment",)),
            ),
            _rule(
                "augmentation.masking.probability",
                Float(0.0, 1.0),
                Normal(0.25),
                When(_MASKING, ("erasing", "cutout")),
            ),
            _rule(
                "augmentation.mixing.alpha",
                Float(0.01, 10.0, log=True),
                Normal(0.2),
                When(_MIXING, ("mixup", "cutmix")),
            ),
            _rule("augmentation.crop.fraction", Float(0.02, 0.5), Normal(0.125, "high")),
        ),
        own={
            _OPTIMIZER: "sgd",
            _POLICY: "none",
            _MASKING: "none",
            _MIXING: "none",
            "optimizer.lr": 0.2,
            "optimizer.weight_decay": 5e-5,
            "optimizer.momentum": 0.9,
            "schedule.warmup_epochs": 1.0,
            "regularisation.label_smoothing": 0.0,
            "augmentation.crop.fraction": 0.125,
        },
    )


def _rule(path: str, domain: Domain, prior: Prior, when: When | None = None, variant: str = "") -> Dimension:
    return Dimension(path, domain, "planted", "none", when, variant, Believed(prior))


@dataclass
class _PlantedTrial:
    number: int
    values: Values
    worth: float
    diverges: int | None  # in this epoch
    history: list[EpochEvent] = field(default_factory=list)
    end: TrialEnd | None = None

    def summary(self) -> Trial:
        return Trial(
            id=self.number,
            values=self.values,
            own=self.number == 0,
            attempts=1,
            history=tuple(self.history),
            end=self.end,
        )


def scored(trial: int, epoch: int, score: float, rung: int | None = None) -> EpochEvent:
    """Return an epoch of which only the score counts."""
    return EpochEvent(trial=trial, result=epoch_result(epoch, score), rung=rung)


def search(
    space: Space, kind: SamplerKind, trials: int, seed: int, gain: Gain = nothing, *, pruned: bool = True
) -> Summary:
    """Run a whole search; the same arguments give the same search."""
    steps = rungs(GRACE, FACTOR, EPOCHS) if pruned else ()
    planted = _Planted(space, make_sampler(space, kind, seed, "max"), Asha(steps, FACTOR, "max"), gain, seed)
    ended = tuple(each.summary() for each in planted.run(trials))
    return Summary("planted", None, "finished", None, METRIC, ended, EPOCHS, 0.0)


class _Planted:
    def __init__(self, space: Space, sampler: Sampler, asha: Asha, gain: Gain, seed: int) -> None:
        self._space = space
        self._sampler = sampler
        self._asha = asha
        self._gain = gain
        self._random = np.random.default_rng((seed, 1))

    def run(self, trials: int) -> Sequence[_PlantedTrial]:
        started: list[_PlantedTrial] = []
        lanes = [self._lane(started, trials) for _ in range(WORKERS)]
        while lanes:
            lanes = [lane for lane in lanes if next(lane, None) is not None]
        return started

    def _lane(self, started: list[_PlantedTrial], trials: int) -> Iterator[int]:
        """Works as one worker, which trains an epoch each time it is asked for the next number."""
        while len(started) < trials:
            trial = self._begun(len(started))
            started.append(trial)
            while trial.end is None:
                trial.end = self._trained(trial)
                yield trial.number
            scores = {each.epoch: each.result.val_accuracy for each in trial.history}
            self._sampler.tell(trial.number, trial.end, scores)

    def _begun(self, number: int) -> _PlantedTrial:
        values = self._sampler.ask(number) if number else self._space.own
        self._sampler.add(number, values)
        worth = self._gain(values) + LUCK * self._random.normal()
        diverges = int(self._random.integers(1, 4)) if self._random.random() < DIVERGING else None
        return _PlantedTrial(number, values, worth, diverges)

    def _trained(self, trial: _PlantedTrial) -> TrialEnd | None:
        """Train an epoch; return how it ends the trial."""
        epoch = len(trial.history) + 1
        if epoch == trial.diverges:
            return "diverged"
        score = trial.worth + EARLY_LUCK * (1.0 - epoch / EPOCHS) * float(self._random.normal())
        trial.history.append(scored(trial.number, epoch, score, self._asha.rung_at(epoch)))
        goes_on = self._asha.report(trial.number, epoch, score, exempt=trial.number == 0)
        if epoch == EPOCHS:
            return "finished"
        return None if goes_on else "stopped"
