"""Tests the audit against searches with known faults, and against healthy ones.

Each case is drawn anew for several seeds, with another sampler each. What is planted is one thing, so that
every other finding is false.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from search.learning.refine import refine
from search.learning.search import Search
from tests.search.planted_searches import Images, Landscape, Run, planted

pytestmark = pytest.mark.slow("runs many searches")

SEEDS = (0, 1, 2)
SAMPLERS = ("random", "qmc", "tpe")

RATE, DECAY, SMOOTHING = "optimizer.lr", "optimizer.weight_decay", "regularisation.label_smoothing"
MAGNITUDE, BATCH = "augmentation.policy.magnitude", "loop.batch_size"
CLIPPING = "regularisation.clipping.kind"
SGD_RATE = "optimizer.lr[sgd]"
At = Mapping[str, float]

# They make a space of five ranges: logarithmic and not, of whole numbers and not
FIVE: dict[str, Any] = {
    "space__name": "quick",
    "base": {"optimizer.kind": "sgd", "augmentation.policy.kind": "randaugment"},
    "space__overrides": {
        RATE: {"log": [0.01, 1.0]},
        DECAY: {"log": [1e-5, 1e-3]},
        SMOOTHING: {"uniform": [0.05, 0.3]},
        MAGNITUDE: {"int": [3, 12]},
        BATCH: {"int_log": [32, 256]},
    },
}
TWO_KINDS: dict[str, Any] = {
    "space__name": "quick",
    "space__overrides": {
        "optimizer.kind": {"choice": ["sgd", "adamw"]},
        SGD_RATE: {"log": [0.01, 1.0]},
        SMOOTHING: {"uniform": [0.05, 0.3]},
    },
}
DOCUMENT: dict[str, Any] = {"space__name": "document"}


class Score(NamedTuple):
    found: int
    missed: int
    false: int


@dataclass(frozen=True)
class Case:
    """A planted search and the findings to expect: kinds, each with its subject or "" for any."""

    landscape: Landscape
    expected: Mapping[str, str] = field(default_factory=dict)
    study: Mapping[str, Any] = field(default_factory=lambda: FIVE)
    images: Images = field(default_factory=Images)
    trials: int = 24

    def findings(self, storage: Path, seed: int) -> set[tuple[str, str]]:
        """Return what the audit finds, as kinds with their subjects."""
        sampler = SAMPLERS[seed % len(SAMPLERS)]
        folder = planted(
            storage,
            self.landscape,
            trials=self.trials,
            seed=seed,
            images=self.images,
            sampler__kind=sampler,
            **self.study,
        )
        return {(each.kind, each.about) for each in refine(Search(folder)).findings}

    def score(self, found: set[tuple[str, str]]) -> Score:
        """Return the planted that were found, the planted that were not, and the rest of what was found."""
        hits = [
            {each for each in found if each[0] == kind and about in ("", each[1])}
            for kind, about in self.expected.items()
        ]
        return Score(
            found=sum(map(bool, hits)),
            missed=sum(not each for each in hits),
            false=len(found.difference(*hits)),
        )


def peaked(best: Mapping[str, float]) -> Landscape:
    """Make trials the worse, the further each value lies from the best one (0 and 1 are the ends)."""

    def landscape(at: At, luck: random.Random) -> Run:
        off = sum((at[name] - where) ** 2 for name, where in best.items() if name in at)
        accuracy = 0.9 - 0.1 * off + luck.gauss(0.0, 0.003)
        return Run(accuracy, accuracy + 0.03)

    return landscape


def better_with(kind: str, best: Mapping[str, float]) -> Landscape:
    """Do as `peaked`, and make one optimizer of two better."""

    def landscape(at: At, luck: random.Random) -> Run:
        run = peaked(best)(at, luck)
        return run if f"{RATE}[{kind}]" in at else Run(run.accuracy - 0.1, run.train - 0.1)

    return landscape


def lost_above(rate: float, best: Mapping[str, float]) -> Landscape:
    """Do as `peaked`, but nine in ten trials with a higher rate diverge."""

    def landscape(at: At, luck: random.Random) -> Run:
        run = peaked(best)(at, luck)
        return Run(run.accuracy, run.train, diverges=at[RATE] > rate and luck.random() < 0.9)

    return landscape


def lost_by_luck(share: float) -> Landscape:
    def landscape(at: At, luck: random.Random) -> Run:
        run = peaked({RATE: 0.5})(at, luck)
        return Run(run.accuracy, run.train, diverges=luck.random() < share)

    return landscape


def ending(train: float, *, accuracy: float = 0.85, rise: float = 0.0, swing: float = 0.0) -> Landscape:
    """Make trials end like this; of the values, only the rate matters."""

    def landscape(at: At, luck: random.Random) -> Run:
        lost = 0.05 * (at.get(RATE, 0.5) - 0.5) ** 2 + luck.gauss(0.0, 0.002)
        return Run(accuracy - lost, train - lost, rise, swing)

    return landscape


def steep(fall: float) -> Landscape:
    """Make the best trials stand out: accuracies fall off steeply from the middle of the rates."""

    def landscape(at: At, luck: random.Random) -> Run:
        accuracy = 0.93 - fall * abs(at[RATE] - 0.5) ** 0.5
        return Run(accuracy, accuracy + 0.04)

    return landscape


FEW = Images(train=900, validation=190, test=190)
MANY = Images(train=70_000, validation=15_000, test=15_000)

PLANTED: dict[str, Case] = {
    "rate too low": Case(peaked({RATE: 1.3}), {"edge": RATE}),
    "rate too high": Case(peaked({RATE: -0.3}), {"edge": RATE}),
    "smoothing too weak": Case(peaked({SMOOTHING: 1.3}), {"edge": SMOOTHING}),
    "decay too strong": Case(peaked({DECAY: -0.3}), {"edge": DECAY}),
    "magnitude too small": Case(peaked({MAGNITUDE: 1.3}), {"edge": MAGNITUDE}),
    "batch too large": Case(peaked({BATCH: -0.3}), {"edge": BATCH}),
    "one optimizer's rate too low": Case(
        better_with("sgd", {SGD_RATE: 1.3}), {"edge": SGD_RATE}, TWO_KINDS, trials=32
    ),
    "high rates diverge": Case(lost_above(0.65, {RATE: 0.4}), {"diverged": RATE}),
    "high rates diverge, low ones are best": Case(
        lost_above(0.6, {RATE: -0.3}), {"diverged": RATE, "edge": RATE}
    ),
    "any rate diverges": Case(lost_by_luck(0.4), {"diverged": "trials"}),
    "overfit": Case(ending(0.995), {"overfit": ""}, images=MANY),
    "underfit": Case(ending(0.62, accuracy=0.62), {"underfit": ""}, images=MANY),
    "still improving": Case(ending(0.8, accuracy=0.78, rise=0.008), {"still improving": ""}, images=MANY),
    "few validation images": Case(ending(0.97, accuracy=0.93), {"noisy": ""}, images=FEW),
    "swings to the end": Case(ending(0.9, accuracy=0.87, swing=0.02), {"noisy": ""}, images=MANY),
}

HEALTHY: dict[str, Case] = {
    "best in the middle": Case(peaked({RATE: 0.5, DECAY: 0.5})),
    "best off the middle": Case(peaked({RATE: 0.7, SMOOTHING: 0.3})),
    "nothing matters": Case(peaked({})),
    "nothing matters, of the document's space": Case(peaked({}), study=DOCUMENT),
    "best in the middle, of the document's space": Case(
        peaked({SGD_RATE: 0.5, "optimizer.lr[adamw]": 0.5, "optimizer.momentum": 0.5}), study=DOCUMENT
    ),
    "best in the middle, one optimizer better": Case(
        better_with("sgd", {SGD_RATE: 0.5}), study=TWO_KINDS, trials=32
    ),
    "few diverge": Case(lost_by_luck(0.06)),
    "a gap of three points": Case(ending(0.95, accuracy=0.92), images=MANY),
    "a slight rise": Case(ending(0.9, accuracy=0.87, rise=0.001), images=MANY),
    "slight swings": Case(ending(0.9, accuracy=0.87, swing=0.004), images=MANY),
    "best at the least that a recipe takes": Case(
        peaked({SMOOTHING: -0.3}),
        study={**FIVE, "space__overrides": {**FIVE["space__overrides"], SMOOTHING: {"uniform": [0.0, 0.3]}}},
    ),
    "few validation images, and clear differences": Case(steep(0.6), images=FEW),
}


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Score]]:
    """Return the score of each seed, by case."""
    storage = tmp_path_factory.mktemp("planted")
    return {
        name: [case.score(case.findings(storage / f"{name} {seed}", seed)) for seed in SEEDS]
        for name, case in {**PLANTED, **HEALTHY}.items()
    }


def test_what_is_planted_is_found_and_little_else(scores: dict[str, list[Score]]) -> None:
    """There are 15 planted and 12 healthy searches, three seeds each; six gave recall and precision 0.99."""
    every = [score for each in scores.values() for score in each]
    found, missed, false = (sum(column) for column in zip(*every, strict=True))
    wanted = {
        name: each for name, each in scores.items() if any(score.missed or score.false for score in each)
    }
    assert found / (found + missed) >= 0.95, wanted
    assert found / (found + false) >= 0.95, wanted


@pytest.mark.parametrize("name", PLANTED)
def test_each_kind_of_fault_is_found_for_most_seeds(scores: dict[str, list[Score]], name: str) -> None:
    assert sum(each.missed == 0 for each in scores[name]) >= 2, scores[name]


@pytest.mark.parametrize("name", HEALTHY)
def test_each_healthy_search_is_left_alone_for_most_seeds(scores: dict[str, list[Score]], name: str) -> None:
    assert sum(each.false == 0 for each in scores[name]) >= 2, scores[name]
