"""Verdicts on a search's rules: computed from its trials, without side effects, and written for a person.

A rule is a belief in the space. Trials that follow it are compared with those that depart from it, by their
standings among all trials (`search.learning.standings`), all other rules being equal
(`search.learning.effects`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any, assert_never

from search.learning.standings import positions, standings
from search.record.summary import Summary
from search.record.verdicts import FALSE_SHARE, WORDS, Verdict, Verdicts, VerdictWord
from spaces.conditions import scalars_of
from spaces.domains import Choice, Domain, Value, Values, counted, fraction_of, listed, shown
from spaces.priors import Normal, Prior, Uniform, Weights, density, describe, quantile_value
from spaces.space import Dimension, RuleValue, Space
from trainable.markdown import plain, table

if TYPE_CHECKING:  # NumPy and SciPy, which a search without trials need not wait for
    from search.learning.effects import AgreementGain, Column

# the share of false verdicts to test for. It is less than the promised share: where one rule decides nearly
# everything, the errors of the others come out too small (benchmarks/results/verdicts.md)
TESTED_AT = 0.8 * FALSE_SHARE
# at least so many trials must follow a rule, and so many depart from it, before it gets a verdict
LEAST_ON_A_SIDE = 5
FEW_TRIALS = 20  # of a search with fewer, rules without a verdict are counted, not listed; our choice
QUANTILES = 200  # this number of a prior's draws represents all of its draws
TINY = 1e-9  # the error that rounding may cause in an agreement or a density
BORDER = 0.5 - TINY  # a number follows the rule from this agreement on
# an option departs from a rule where its weight is below this share of the likeliest option's; our choice.
# The least confidence that can be written gives the others a half (`spaces.priors.ODDS`), ties of rules have
# more
CLEARLY_LESS = 0.75


@dataclass(frozen=True)
class RuleAgreement:
    """A dimension over the trials: each value's agreement with the rule, and its position.

    Both are nan in trials without the dimension; the agreement is also nan where the rule believed nothing.
    """

    dimension: Dimension
    example: Prior  # the prior that the rule believes beside the documents' own values
    agreements: Sequence[float]
    positions: Sequence[float]
    # whether each trial's value is clearly less likely than what the rule believes; false where nan
    departures: Sequence[bool]

    @property
    def is_rule(self) -> bool:
        return not isinstance(self.example, Uniform) or not all(map(math.isnan, self.agreements))

    @property
    def follow(self) -> list[float]:
        """The agreements of the trials whose value the rule believes in; see `departs`."""
        return self._agreeing(departing=False)

    @property
    def depart(self) -> list[float]:
        """The agreements of the trials whose value is clearly less likely."""
        return self._agreeing(departing=True)

    def _agreeing(self, *, departing: bool) -> list[float]:
        pairs = zip(self.agreements, self.departures, strict=True)
        return [each for each, departs in pairs if departs is departing and not math.isnan(each)]

    @property
    def tied(self) -> tuple[Value, ...]:
        """The options between which the rule decides nothing; none where one is clearly the likeliest."""
        if not isinstance(self.example, Weights) or not isinstance(domain := self.dimension.domain, Choice):
            return ()
        near = tuple(each for each in domain.options if not departs(domain, self.example, each))
        return near if len(near) > 1 else ()

    @property
    def lacking(self) -> str | None:
        """What too few trials do, in words; None where there are enough on either side."""
        follow, depart = len(self.follow), len(self.depart)
        few, do = (follow, "follow it") if follow < depart else (depart, "depart from it")
        if few >= LEAST_ON_A_SIDE:
            return None
        count = f"{few} of {follow + depart} trials {do}, at least {LEAST_ON_A_SIDE} needed"
        if not self.tied:  # otherwise no value departs from options of nearly one weight
            return count
        if self.dimension.domain.extremes() == self.tied:
            return "prefers none of its options"
        return f"prefers none of {listed(map(shown, self.tied))}; {count}"

    def verdict(self, word: VerdictWord, why: str | None = None) -> Verdict:
        """Return the record of a verdict without an effect."""
        says = describe(self.dimension.domain, self.example)
        sides = len(self.follow), len(self.depart)
        return Verdict(self.dimension.name, word, says, self.dimension.source, *sides, why=why)


def agreement(domain: Domain, prior: Prior, value: Value) -> float:
    """Return a value's density over the sum of it and the mean density of the prior's own draws: 0 to 1.

    A normal's draws agree by half or more within 0.83 standard deviations; nearly six in ten do. The density
    itself is not bounded above, nor its logarithm below: one far trial would decide everything.
    """
    own = density(domain, prior, value)
    return own / (own + _usual(domain, prior))


def departs(domain: Domain, prior: Prior, value: Value) -> bool:
    """Say whether a value is clearly less likely than what a rule believes.

    A number departs where it is less likely than the rule's own draws are on average. An option departs where
    its weight is below `CLEARLY_LESS` of the likeliest's: a rule that believes two options alike is followed
    by both.
    """
    match prior:
        case Uniform():
            return False
        case Weights(weights=weights):
            likeliest = max(weights) / sum(weights) * len(weights)
            return density(domain, prior, value) < CLEARLY_LESS * likeliest - TINY
        case Normal():
            return agreement(domain, prior, value) < BORDER
        case _:
            assert_never(prior)


@lru_cache(maxsize=4096)  # trials share most priors
def _usual(domain: Domain, prior: Prior) -> float:
    """Return the mean density of a prior's draws."""
    quantiles = ((number + 0.5) / QUANTILES for number in range(QUANTILES))
    return fmean(density(domain, prior, quantile_value(domain, prior, each)) for each in quantiles)


def verdicts_of(summary: Summary, space: Space) -> Verdicts:
    """Return the verdicts on every rule that gave the space a prior or a value."""
    values = scalars_of(space.base)
    ruled = space.values_by_rule(values).items()
    return judge(space, summary, {path: rule for path, rule in ruled if values[path] == rule.value})


def judge(space: Space, summary: Summary, fixed: Mapping[str, RuleValue] | None = None) -> Verdicts:
    """Return the verdicts on the rules of a space, and on the values that rules `fixed`, by path.

    The documented recipe follows every rule at once, so it cannot tell one rule from another: others are
    compared with it, and no more. The same holds for trials that are no point of the space.
    """
    standing = standings(summary)
    others = [each for each in summary.trials if each.id in standing and not each.own]
    points = [each for each in others if positions(space, each) is not None]
    beliefs = _agreements(space, [each.values for each in points])
    found, level = _tested_rules(
        beliefs, [standing[each.id] for each in points], [each.id for each in points]
    )
    paths = {each.path for each in space.dimensions}
    rest = [
        Verdict(path, "untested", shown(rule.value), rule.source, why="fixed, never varied", fixed=True)
        for path, rule in (fixed or {}).items()
        if path not in paths
    ]
    return Verdicts((*found, *rest), len(standing), level)


def _agreements(space: Space, trials: Sequence[Values]) -> list[RuleAgreement]:
    """Return each dimension over the trials, by the priors that it had beside each trial's other values."""
    by_trial = [(space.priors(values), space.named(values)) for values in trials]
    agreements = []
    for dimension in space.dimensions:
        domain = dimension.domain
        pairs = [(priors.get(dimension.name), at.get(dimension.name)) for priors, at in by_trial]
        agreements.append(
            RuleAgreement(
                dimension,
                dimension.prior(space.own),
                [
                    math.nan
                    if prior is None or isinstance(prior, Uniform)
                    else agreement(domain, prior, value)
                    for prior, value in pairs
                ],
                [math.nan if prior is None else fraction_of(domain, value) for prior, value in pairs],
                [prior is not None and departs(domain, prior, value) for prior, value in pairs],
            )
        )
    return agreements


def _tested_rules(
    beliefs: Sequence[RuleAgreement], standing: Sequence[float], order: Sequence[int]
) -> tuple[list[Verdict], float | None]:
    """Return a verdict on each rule, and the confidence of their intervals."""
    rules = [each for each in beliefs if each.is_rule]
    tested = [each for each in rules if each.lacking is None]
    if not tested or len(set(standing)) == 1:
        return [each.verdict("untested", each.lacking or "all scores are equal") for each in rules], None
    from search.learning.effects import risk_for

    estimates = {each.dimension.name: _estimate(each, beliefs, standing, order) for each in tested}
    risk = risk_for([each.chance for each in estimates.values()], TESTED_AT)
    verdicts = [
        each.verdict("untested", each.lacking)
        if each.lacking
        else _tested(each, estimates[each.dimension.name], risk)
        for each in rules
    ]
    return verdicts, 1.0 - risk


def _estimate(
    belief: RuleAgreement, beliefs: Sequence[RuleAgreement], standing: Sequence[float], order: Sequence[int]
) -> AgreementGain:
    """Return the gain from agreement with a rule; the model holds all other dimensions too."""
    import numpy as np

    from search.learning.effects import estimate

    others = [_column(each) for each in beliefs if each is not belief]
    return estimate(np.array(standing), np.array(order, float), _column(belief), others)


def _column(belief: RuleAgreement) -> Column:
    import numpy as np

    from search.learning.effects import column

    return column(
        np.array(belief.agreements),
        np.array(belief.positions),
        options=isinstance(belief.dimension.domain, Choice),
    )


def _tested(belief: RuleAgreement, estimate: AgreementGain, risk: float) -> Verdict:
    """Return the verdict on one rule.

    Its effect is the slope times the difference in agreement between the trials that follow and those that
    depart.
    """
    gap = fmean(belief.follow) - fmean(belief.depart)
    low, high = (gap * end for end in estimate.interval(risk))
    word: VerdictWord = "supported" if low > 0 else "contradicted" if high < 0 else "untested"
    plain = belief.verdict(word, "the interval contains 0" if word == "untested" else None)
    return replace(plain, effect=gap * estimate.slope, interval=(low, high))


def counts(verdicts: Verdicts) -> str:
    """Return how many beliefs got which verdict, in one line."""
    return ", ".join(f"{len(verdicts.of(word))} {word}" for word in WORDS)


def untested(verdicts: Verdicts) -> str:
    """Return in a line how many rules too few trials leave untested; empty where there are many trials."""
    number = len(verdicts.of("untested"))
    if not number or verdicts.trials >= FEW_TRIALS:
        return ""
    rules = counted(number, "rule")
    return f"{rules} untested: too few trials ({verdicts.trials} can be compared, {FEW_TRIALS} are needed)"


def promise(verdicts: Verdicts) -> str:
    """Return what the figures mean, and how far they can be trusted."""
    meaning = "places: how many more of 100 other trials a trial beats by following the rule, all else equal"
    if verdicts.level is None:
        return meaning
    level = f"{verdicts.level:.1%}".replace(".0%", "%")
    share = f"at most 1 verdict in {1 / FALSE_SHARE:.0f} is expected to be false"
    return f"{meaning}; intervals at {level}: {share}"


def fixed(verdicts: Verdicts) -> str:
    """Return the rules that gave a value and no belief, in one line; empty where there is none."""
    if not (rules := verdicts.fixed):
        return ""
    values = ", ".join(f"{each.rule} {each.says}" for each in rules)
    text = "more rule fixed a value" if len(rules) == 1 else "more rules fixed a value"
    return f"{len(rules)} {text}, which no trial varied: {values}"


def markdown(verdicts: Verdicts) -> str:
    """Return a table of the rules that the trials support or contradict; the others are counted."""
    lines = [f"**Rules**: {counts(verdicts)}, from {verdicts.trials} trials."]
    if verdicts.clear:
        rows = [(plain(each.rule), each.word, effect(each), plain(each.says)) for each in verdicts.clear]
        lines += [
            "",
            table(("rule", "verdict", "places of 100", "the rule says"), rows),
            "",
            promise(verdicts),
        ]
    return "\n".join(lines)


def mlflow_table(verdicts: Verdicts) -> str:
    """Return every rule in the JSON of MLflow's `log_table`, which MLflow shows as a table.

    `log_table` itself is not called, because it would append to the table.
    """
    rows: list[dict[str, Any]] = [each.json() for each in verdicts.rules]
    columns = list(Verdict("", "untested", "", "").json())
    return json.dumps({"columns": columns, "data": [[row[name] for name in columns] for row in rows]})


def effect(verdict: Verdict) -> str:
    """Return the effect with its interval, as in +31 (18 to 44)."""
    return in_places(verdict.effect, *(verdict.interval or (None, None)))


def in_places(effect: float | None, low: float | None, high: float | None) -> str:
    """Return an effect with its interval; empty where it is not known."""
    if effect is None or low is None or high is None:
        return ""
    return f"{effect:+.0f} ({low:.0f} to {high:.0f})"
