"""Measures how far verdicts can be trusted: how many are false, and how many true effects are found.

    python benchmarks/verdicts.py [--studies 1000] [--adaptive 200] [--samplers random,tpe]

Searches are simulated (`planted_rules`): the product's samplers draw from fifteen rules, its pruning stops
trials, and scores follow a formula. First no rule matters and every verdict is false; then five rules matter
at once, or two that decide nearly everything; then one alone, weakly or strongly. `--studies` searches are
made where draws learn nothing, `--adaptive` where a sampler follows the noise, which takes seconds a search.
Last, the curves are real ones (`recipe_table`): draws from priors around the best or the worst of 25 recipes
get the curve of the nearest of 256.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist, fmean, stdev
from typing import get_args

from offline.beliefs import Worth, believing
from offline.planted_rules import METRIC, PLANTED, Gain, nothing, planted, scored, search, space_of_rules
from offline.search_task import SearchTask, Trained
from offline.tasks import task
from offline.verdicts_page import Null, Planting, Power, Real, page
from report import environment, write
from search.deciding.points import RandomSampler
from search.learning.judging import judge
from search.record.summary import Summary
from search.record.trials import Trial
from search.record.verdicts import Verdict, Word
from search.study import SamplerKind

LENGTHS = (16, 48, 100)
SIZES = (2.0, 3.0, 5.0)
DECISIVE = 10.0
"""An effect of this size is a rate so wrong that nothing else counts, as in real searches."""
ALONE = (0.5, 1.0, 2.0, 3.0, 5.0)
BANDS = ((0, 10), (10, 20), (20, 30), (30, 50))
"""The power is given for effects in each of these bands, in places of 100."""
LEAST_TESTED = 20
"""A rule's power is given only if it had enough trials in so many searches."""
FIXED_DRAWS = ("random", "qmc")
WORTHS: tuple[Worth, ...] = ("right", "adversarial")
REAL_SEARCHES = 40
RATES = ("optimizer.lr[sgd]", "optimizer.lr[adamw]")
"""These rules decide nearly all of the difference between the table's recipes."""
Rules = dict[str, Verdict]


def main() -> None:
    options = _options()
    os.nice(10)
    where = environment(1)
    counts = {
        kind: options.studies if kind in FIXED_DRAWS else options.adaptive
        for kind in get_args(SamplerKind)
        if kind in options.samplers.split(",")
    }
    nulls = [
        null(kind, trials, count)
        for kind, count in counts.items()
        for trials in LENGTHS
        if kind in FIXED_DRAWS or trials < LENGTHS[-1]  # others take several seconds a search then
    ]
    plantings = [
        planting(kind, 48, size, rules, count // 2)
        for kind, count in counts.items()
        for size, rules in [(each, tuple(PLANTED)) for each in SIZES] + [(DECISIVE, RATES)]
    ]
    power = [row for trials in LENGTHS for row in powers(trials, options.studies // 10)]
    trained = [real(worth, trials) for trials in LENGTHS[:2] for worth in WORTHS]
    record = {
        "environment": where,
        "null": [asdict(row) for row in nulls],
        "planted": [asdict(row) for row in plantings],
        "power": [asdict(row) for row in power],
        "real": [asdict(row) for row in trained],
    }
    write(options.name, record, page(nulls, plantings, power, trained, where))


def simulated_verdicts(kind: SamplerKind, trials: int, seeds: range, gain: Gain) -> Iterator[Rules]:
    """Yield the verdicts of each simulated search, by rule."""
    space = space_of_rules()
    for seed in seeds:
        yield {each.rule: each for each in judge(space, search(space, kind, trials, seed, gain)).rules}


def null(kind: SamplerKind, trials: int, count: int) -> Null:
    found = list(simulated_verdicts(kind, trials, range(count), nothing))
    tested = sum(map(_tested, found))
    false = [_clear(each) for each in found]
    share = sum(map(bool, false)) / count
    return Null(kind, trials, count, tested / count, sum(false) / tested, share, _wilson(share, count))


def planting(kind: SamplerKind, trials: int, size: float, chosen: Collection[str], count: int) -> Planting:
    found = list(simulated_verdicts(kind, trials, range(10_000, 10_000 + count), planted(size, chosen)))
    idle = [{name: each for name, each in rules.items() if name not in chosen} for rules in found]
    right = [sum(rules[name].word == PLANTED[name] for name in chosen) for rules in found]
    shares = [
        1.0 - true / (_clear(rules) or 1) if _clear(rules) else 0.0
        for true, rules in zip(right, found, strict=True)
    ]
    false_of_null = sum(map(_clear, idle)) / sum(map(_tested, idle))
    return Planting(
        kind, trials, size, len(chosen), count, fmean(right), fmean(shares), _error(shares), false_of_null
    )


def powers(trials: int, count: int) -> Iterator[Power]:
    """Yield how often a rule that alone matters is found, by the size of its effect."""
    cells = [_Cell.of(trials, count, rule, size) for rule in PLANTED for size in ALONE]
    for low, high in BANDS:
        inside = [each for each in cells if len(each.verdicts) >= LEAST_TESTED and low <= each.effect < high]
        words = [(cell.right, verdict.word) for cell in inside for verdict in cell.verdicts]
        if inside:
            found = fmean(word == right for right, word in words)
            wrong = fmean(word not in (right, "untested") for right, word in words)
            yield Power(trials, low, high, len(inside), len(words), found, wrong)


@dataclass(frozen=True)
class _Cell:
    """Holds the verdicts on one planted rule at one size, in the searches that tested it."""

    right: Word
    verdicts: list[Verdict]

    @classmethod
    def of(cls, trials: int, count: int, rule: str, size: float) -> _Cell:
        searches = simulated_verdicts("random", trials, range(20_000, 20_000 + count), planted(size, [rule]))
        return cls(PLANTED[rule], [rules[rule] for rules in searches if rules[rule].effect is not None])

    @property
    def effect(self) -> float:
        """The mean effect in places of 100; above 0 it points the right way."""
        mean = fmean(each.effect for each in self.verdicts if each.effect is not None)
        return mean if self.right == "supported" else -mean


def real(worth: Worth, trials: int) -> Real:
    """Count the verdicts on priors of known worth, from curves that were trained."""
    chosen = task("fashion-mnist")
    found = []
    for seed in range(REAL_SEARCHES):
        space = believing(chosen, worth, seed)
        sampler, train = RandomSampler(space, seed), chosen.begin()
        drawn = [train(sampler.ask(number)) for number in range(trials)]
        found.append({each.rule: each for each in judge(space, _summary(drawn, chosen)).rules})
    rates = [{name: rules[name] for name in RATES} for rules in found]
    others = [{name: each for name, each in rules.items() if name not in RATES} for rules in found]
    return Real(trials, worth, REAL_SEARCHES, *_counted(rates), *_counted(others))


def _summary(drawn: Sequence[Trained], chosen: SearchTask) -> Summary:
    """Return the summary of trials without pruning, to be compared at the first rung and at the end."""
    trials = tuple(
        Trial(
            id=number,
            values=trained.values,
            attempts=1,
            history=tuple(
                scored(number, epoch, score, epoch if epoch == chosen.grace else None)
                for epoch, score in enumerate(trained.curve, start=1)
            ),
            end="finished" if len(trained.curve) == chosen.epochs else "diverged",
        )
        for number, trained in enumerate(drawn)
    )
    return Summary(chosen.name, None, "finished", None, METRIC, trials, chosen.epochs, 0.0)


def _counted(found: Sequence[Rules]) -> tuple[int, int, int]:
    """Return how many rules were tested, supported and contradicted, over all searches."""
    words = [each.word for rules in found for each in rules.values() if each.effect is not None]
    return len(words), words.count("supported"), words.count("contradicted")


def _tested(rules: Rules) -> int:
    return sum(each.effect is not None for each in rules.values())


def _clear(rules: Rules) -> int:
    return sum(each.word != "untested" for each in rules.values())


def _error(values: Sequence[float]) -> float:
    """Return the standard error of the mean of these values."""
    return stdev(values) / math.sqrt(len(values))


def _wilson(share: float, count: int) -> tuple[float, float]:
    z = NormalDist().inv_cdf(0.975)
    centre, scale = share + z * z / (2 * count), 1.0 + z * z / count
    reach = z * math.sqrt(share * (1.0 - share) / count + z * z / (4 * count * count))
    return max(0.0, (centre - reach) / scale), (centre + reach) / scale


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Count true and false verdicts in searches whose rules have a known worth."
    )
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--adaptive", type=int, default=200)
    parser.add_argument("--samplers", default=",".join(get_args(SamplerKind)))
    parser.add_argument("--name", default="verdicts")
    return parser.parse_args()


if __name__ == "__main__":
    main()
