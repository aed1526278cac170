"""Asks what part of the trials diverged, and whether their rate was the cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

from search.learning.edges import EDGE
from search.learning.edges import SOURCE as BOUNDARIES
from search.learning.evidence import PLAYBOOK, Evidence, LeftAlone, ProposedEdit, SearchFinding, overridden
from search.learning.ranges import below, written
from search.learning.shifts import shifts
from spaces.domains import Float, fraction_of, is_number
from spaces.space import Dimension
from trainable.curves.remedies import remedies
from trainable.diagnosis import curves_of
from trainable.recipe import LEARNING_RATES

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


def rates_too_high(evidence: Evidence, dimension: Dimension) -> tuple[SearchFinding, Float] | None:
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


def diverged_at_any_rate(evidence: Evidence, changed: Set[str]) -> Iterator[SearchFinding | LeftAlone]:
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
    found = shifts(evidence, calmer, changed)
    yield SearchFinding(
        "diverged",
        "trials",
        f"{lost} of {count} trials diverged, and their rates do not explain which",
        LIMITS,
        SOURCE,
        found.proposed_edits,
        ("see what `tunebook check` says of the data and the network",),
    )
    yield from found.left_alone


def _finding(evidence: Evidence, dimension: Dimension, narrowed: Float, rates: _Rates) -> SearchFinding:
    best = evidence.best_value(dimension)
    lost, count = len(rates.lost), len(rates.lost) + len(rates.sound)
    seen = f"{lost} of {count} trials diverged, {rates.lost_above(narrowed.high)} of them above"
    edit = ProposedEdit(overridden(dimension.name), (written(narrowed, best),), f"{seen} {narrowed.high:.3g}")
    return SearchFinding(
        "diverged",
        dimension.name,
        f"{seen} {narrowed.high:.3g}, where {rates.sound_above(narrowed.high)} did not",
        f"{LIMITS}, at rates so high that luck alone does it in 1 of {1.0 / CHANCE:.0f} searches at most",
        SOURCE,
        (edit,),
        tuple(_stability(narrowed, best)),
    )


def _stability(narrowed: Float, best: object) -> Iterator[str]:
    """Yield advice if the best rate lies just below those that diverge: higher ones may then work."""
    if is_number(best) and best in narrowed and fraction_of(narrowed, best) >= 1.0 - EDGE:
        seen = f"the best trial's {best:.3g} is just below the rates that diverged: a longer warm-up or"
        yield f"{seen} regularisation.clipping may open higher rates ({BOUNDARIES})"


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
