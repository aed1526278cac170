"""Questions about the ranges of a search: is one too small, and did rates make trials diverge?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

from search.learning.evidence import PLAYBOOK, Evidence, LeftAlone, ProposedEdit, SearchFinding, overridden
from search.learning.proposals import NumberRange, RangeEnd, below, reaching, shifts, wider, written
from search.learning.standings import by_luck
from spaces.domains import Choice, Domain, Float, fraction_of, is_number
from spaces.space import Dimension
from trainable.curves.remedies import remedies
from trainable.diagnosis import curves_of
from trainable.recipe import LEARNING_RATES

EDGE = 0.1  # the best value lies "close to" an end of its range within this part of it; our choice
# chance alone may show this many trends over all ranges of a search, at either end; our choice
FALSE_SHARE = 0.1
BOUNDARIES = f"{PLAYBOOK}, Identifying bad search space boundaries"
# fields that calm the first steps and bound a wild batch, whatever the rate
CALMER = ("schedule.warmup_epochs", "regularisation.clipping.kind", "regularisation.clipping.max_norm")
LEAST_DIVERGED = 3
# the share of the trials that have a rate; a smaller share is the price of looking for the highest rate that
# still trains; our choice
DIVERGED_SHARE = 0.15
# below this probability the diverged trials' rates are higher than the others' (Mann and Whitney's test); our
# choice
CHANCE = 0.01
# a trial that beats so many of 100 has a good rate, which stays in the range, whatever diverged below it
GOOD_STANDING = 75.0
LIMITS = f"{DIVERGED_SHARE:.0%} of the trials and at least {LEAST_DIVERGED}"
SOURCE = f"{PLAYBOOK}, Extracting insight from experimental results; the limits are ours"


def of_ranges(evidence: Evidence, changed: Set[str]) -> Iterator[SearchFinding | LeftAlone]:
    """Examine each range of numbers in turn, then the diverged trials that no rate explains."""
    ranges = [
        (each, each.domain) for each in evidence.space.dimensions if not isinstance(each.domain, Choice)
    ]
    explained, limit = False, FALSE_SHARE / 2.0 / max(1, len(ranges))  # over all ranges, at either end
    for dimension, domain in ranges:
        cut = _rates_too_high(evidence, dimension)
        if cut is not None:
            explained = True
            yield cut[0]
        at_edge = _edge(evidence, dimension, cut[1] if cut else domain, limit)
        if cut is None or isinstance(at_edge, SearchFinding):
            yield at_edge
    if not explained:
        yield from _diverged_at_any_rate(evidence, changed)


def _edge(
    evidence: Evidence, dimension: Dimension, domain: NumberRange, limit: float
) -> SearchFinding | LeftAlone:
    """Return a range to widen, or why it is left alone; `domain` is what an earlier finding left of it.

    "A search space is suspicious if the best point sampled from it is close to its boundary" (the playbook).
    That holds for every fifth dimension that does nothing, so trials must also be better towards that end. Of
    720 healthy planted searches (tests/search/learning/test_refine_planted.py with more seeds; 3 to 17
    dimensions; TPE with 16 to 48 trials, random draws with 24) 19 had a range widened without a reason in the
    planted rules.
    """
    value = evidence.best_value(dimension)
    if not is_number(value):
        return LeftAlone(dimension.name, "the best trial does not have it")
    within = f"at {fraction_of(dimension.domain, value):.0%}" if value in dimension.domain else "outside"
    position = f"the best trial has {value:.3g}, {within} of {dimension.domain}"
    end = _near(dimension.domain, value)
    if end is None:
        return LeftAlone(dimension.name, position)
    above = evidence.trends.chance_above(dimension)
    chance = above if end == "upper" else 1.0 - above
    if chance >= limit:
        why = f"but that trials are better towards its {end} end may be luck: {by_luck(chance)}"
        return LeftAlone(dimension.name, f"{position}, {why}")
    why = f"the best trial's {value:.3g} lies at the {end} end, and trials are better towards it"
    better = f"trials are better towards its {end} end, other values accounted for: {by_luck(chance)}"
    return SearchFinding(
        "edge",
        dimension.name,
        f"{position}; {better}",
        f"within {EDGE:.0%} of an end or beyond it, and a trend that luck alone shows in fewer than 1 of "
        f"{1.0 / limit:.0f} searches (1 of {1.0 / FALSE_SHARE:.0f} over all ranges and ends)",
        f"{BOUNDARIES}; the limits are ours",
        (ProposedEdit(overridden(dimension.name), _forms(domain, end, value), why),),
    )


def _forms(domain: NumberRange, end: RangeEnd, value: float) -> tuple[dict[str, object], ...]:
    """Return wider ranges, widest first; if the best value lies far beyond the end, those that reach it."""
    grown = wider(domain, end)
    if value not in domain:
        grown = [each for each in (*grown, reaching(domain, value)) if each is not None and value in each]
    return tuple(written(each, value) for each in grown)


def _near(domain: Domain, value: float) -> RangeEnd | None:
    """Return the end that a value lies close to, or beyond; None where it lies near neither."""
    assert not isinstance(domain, Choice)
    if value <= domain.low or value >= domain.high:
        return "lower" if value <= domain.low else "upper"
    at = fraction_of(domain, value)
    return "lower" if at <= EDGE else "upper" if at >= 1.0 - EDGE else None


class _Rates(NamedTuple):
    """The rates of the trials that have one, by whether the trial diverged."""

    lost: Mapping[int, float]
    sound: Mapping[int, float]

    @property
    def many_lost(self) -> bool:
        return _are_many(len(self.lost), len(self.lost) + len(self.sound))

    def lost_above(self, top: float) -> int:
        return sum(rate > top for rate in self.lost.values())

    def sound_above(self, top: float) -> int:
        return sum(rate > top for rate in self.sound.values())


def _rates_too_high(evidence: Evidence, dimension: Dimension) -> tuple[SearchFinding, Float] | None:
    """Return a rate's range, cut to where hardly any trial diverged, if many did at rates above the others'.

    Return None for a dimension that is no rate, and where good trials lie among those that diverged.
    """
    domain = dimension.domain
    if dimension.path not in LEARNING_RATES or not isinstance(domain, Float):
        return None
    rates = _rates(evidence, dimension)
    if not rates.many_lost or not rates.sound or _chance(rates) >= CHANCE:
        return None
    top = _highest_rate_left(evidence, rates)
    if 2 * rates.lost_above(top) < len(rates.lost) or not domain.low < top < domain.high:
        return None
    narrowed = below(domain, top)
    return _finding(evidence, dimension, narrowed, rates), narrowed


def _diverged_at_any_rate(evidence: Evidence, changed: Set[str]) -> Iterator[SearchFinding | LeftAlone]:
    """Yield a finding where many trials diverged at any rate: calmer first steps, and bounded gradients."""
    lost = sum(each.state == "diverged" for each in evidence.compared_trials)
    count, best = len(evidence.compared_trials), evidence.summary.best
    if best is None or not _are_many(lost, count):
        if lost:
            yield LeftAlone("diverged trials", f"{lost} of {count}, less than {LIMITS}")
        return
    recipe = best.whole_recipe
    proposed = remedies("diverged", recipe, curves_of(recipe.task))
    calmer = [each for each in proposed if each.path in CALMER]
    calming = shifts(evidence, calmer, changed)
    yield SearchFinding(
        "diverged",
        "trials",
        f"{lost} of {count} trials diverged, and their rates do not explain which",
        LIMITS,
        SOURCE,
        calming.proposed_edits,
        ("see what `tunebook check` says of the data and the network",),
    )
    yield from calming.left_alone


def _finding(evidence: Evidence, dimension: Dimension, narrowed: Float, rates: _Rates) -> SearchFinding:
    best = evidence.best_value(dimension)
    lost, count = len(rates.lost), len(rates.lost) + len(rates.sound)
    seen = f"{lost} of {count} trials diverged, {rates.lost_above(narrowed.high)} of them above"
    edit = ProposedEdit(overridden(dimension.name), (written(narrowed, best),), f"{seen} {narrowed.high:.3g}")
    advice: tuple[str, ...] = ()
    if is_number(best) and best in narrowed and fraction_of(narrowed, best) >= 1.0 - EDGE:
        below_them = f"the best trial's {best:.3g} is just below the rates that diverged: a longer warm-up or"
        advice = (f"{below_them} regularisation.clipping may open higher rates ({BOUNDARIES})",)
    return SearchFinding(
        "diverged",
        dimension.name,
        f"{seen} {narrowed.high:.3g}, where {rates.sound_above(narrowed.high)} did not",
        f"{LIMITS}, at rates so high that luck alone does it in 1 of {1.0 / CHANCE:.0f} searches at most",
        SOURCE,
        (edit,),
        advice,
    )


def _highest_rate_left(evidence: Evidence, rates: _Rates) -> float:
    """Return the sound rate above which most trials diverged and fewest did not, above no good rate."""
    standings = evidence.trends.standings
    good = [rate for trial, rate in rates.sound.items() if standings.get(trial, 0.0) >= GOOD_STANDING]
    rates_left = [rate for rate in rates.sound.values() if rate >= max(good, default=0.0)]
    return max(rates_left, key=lambda rate: (rates.lost_above(rate) - rates.sound_above(rate), rate))


def _rates(evidence: Evidence, dimension: Dimension) -> _Rates:
    lost: dict[int, float] = {}
    sound: dict[int, float] = {}
    for trial in evidence.compared_trials:
        rate = evidence.space.named(trial.values).get(dimension.name)
        if is_number(rate):
            (lost if trial.state == "diverged" else sound)[trial.id] = rate
    return _Rates(lost, sound)


def _chance(rates: _Rates) -> float:
    """Return how likely the diverged trials' rates would be so high if the rate were not the cause."""
    from scipy.stats import mannwhitneyu

    lost, sound = (list[float](each.values()) for each in rates)
    return float(mannwhitneyu(lost, sound, alternative="greater").pvalue)


def _are_many(lost: int, count: int) -> bool:
    return lost >= max(LEAST_DIVERGED, DIVERGED_SHARE * count)
