"""What earlier searches say of one dimension, and what this search believes of it, therefore.

A number's lesson is a shift: how far its best value lay from what the rule says for that search's facts, on
the scale of this search's range. It is added to what the rule says here. Where either search has no rule, the
lesson is the value itself. Of options the odds are learned. No belief is surer than the variance of all
sources together allows.

Tasks with similar facts have similar good values (meta-features: Vanschoren, arXiv 1810.03548, section 3).
The variance between the best values of two tasks grows with their distance as an exponential variogram, which
geostatistics uses for points on a map (Cressie 1993, Statistics for Spatial Data, section 2.3.1): one part is
there for equal facts too, the other one rises from 0 with the distance, up to a limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import TYPE_CHECKING, assert_never

from spaces.domains import Choice, Domain, Float, Integer, fraction_of, index_of, is_number, shown
from spaces.facts import Facts
from spaces.priors import ODDS, SPREADS, Confidence, Normal, Prior, Uniform, Weights
from spaces.space import Believed, Dimension
from spaces.tables import mapped

if TYPE_CHECKING:  # SciPy takes a second to import
    from search.learning.optimum import Optimum

# how far the best value of a search lies from where the model of another search of the same task is sure that
# it lies: a standard deviation, as a share of the range (docs/decisions/0039)
SAME_FACTS = 0.2
# the standard deviation whose square is added between tasks that have nothing in common: so far apart are the
# best values of the tables in docs/decisions/0039
OTHER_FACTS = 0.25
# for each factor of ten in one of these facts, the distance grows by 1
COUNTS = ("train_images", "classes", "class_balance", "image_size", "parameters", "epochs")
# for each of these facts that differs, the distance grows by 1
KINDS = ("task", "channels", "pretrained", "attention", "batch_norm")
CLEAR = 0.05  # a fact that adds less to the distance is not named
LEARN_FROM = "space.learn_from"  # the field of a study that names earlier searches
# the variance of even draws, in squared shares of their range: what is known without a search
EVEN_VARIANCE = 1.0 / 12.0
# a source says nothing if its variance is more than that of even draws divided by this; our choice
LEAST_KNOWN = 0.1
MOST_ODDS = ODDS["high"]  # one search changes the odds of two options by this factor at most
LEAST_CHANGE = 1.1  # odds that change by less are left as they are; our choice


@dataclass(frozen=True)
class Likeness:
    """How alike two searches are, by the distance of their facts, at least 0."""

    distance: float
    # the facts that differ, the largest difference first: `train_images 1,257, here 60,000`
    words: tuple[str, ...] = ()

    @property
    def variance(self) -> float:
        """The variance between the best values of the two, in squared shares of a range."""
        return SAME_FACTS**2 + OTHER_FACTS**2 * -math.expm1(-self.distance)

    @property
    def share(self) -> float:
        """The weight that the distance leaves to an earlier search, in (0, 1]; 1 where facts are equal."""
        return SAME_FACTS**2 / self.variance


def likeness(earlier: Facts, now: Facts) -> Likeness:
    """Return how alike an earlier search is to this one."""
    apart = sorted(_differences(earlier, now), key=lambda each: -each[1])
    words = tuple(
        f"{name} {_fact(earlier, name)}, here {_fact(now, name)}" for name, far in apart if far >= CLEAR
    )
    return Likeness(sum(far for _, far in apart), words)


def _differences(earlier: Facts, now: Facts) -> Iterator[tuple[str, float]]:
    for name in COUNTS:
        yield name, abs(math.log10(getattr(earlier, name) / getattr(now, name)))
    for name in KINDS:
        yield name, float(getattr(earlier, name) != getattr(now, name))


def _fact(facts: Facts, name: str) -> str:
    value = getattr(facts, name)
    return f"{value:,}" if type(value) is int else shown(value)


@dataclass(frozen=True)
class Lesson:
    """What an earlier search says of a dimension."""

    search: str
    optimum: Optimum
    domain: Domain  # the domain that the earlier search had
    rule: float | None  # the value that the rule gives for that search's facts; None where it gives none
    likeness: Likeness


def with_lessons(dimension: Dimension, lessons: Sequence[Lesson]) -> Dimension:
    """Return a dimension whose beliefs heed the lessons; the dimension itself where they change nothing."""

    def learned(own: Believed) -> Believed:
        changed = _learned(dimension.domain, own.prior, lessons)
        if changed is None:
            return own
        prior, words = changed
        whose = "the range" if isinstance(own.prior, Uniform) else "the rule"
        reason = own.reason if own.reason is not None else dimension.reason
        return Believed(prior, f"{words}; {whose}: {reason}")

    beliefs = mapped(dimension.beliefs, learned)
    if beliefs == dimension.beliefs:
        return dimension
    return replace(dimension, beliefs=beliefs, source=f"{LEARN_FROM}; {dimension.source}")


def _learned(domain: Domain, own: Prior, lessons: Sequence[Lesson]) -> tuple[Prior, str] | None:
    """Return what is believed now, and why in words; None where nothing is learned."""
    match domain:
        case Float() | Integer():
            assert not isinstance(own, Weights)
            return _learned_number(domain, own, lessons)
        case Choice():
            assert not isinstance(own, Normal)
            return _learned_option(domain, own, lessons)
        case _:
            assert_never(domain)


# --- numbers ------------------------------------------------------------------------------------------


def _learned_number(
    domain: Float | Integer, own: Uniform | Normal, lessons: Sequence[Lesson]
) -> tuple[Prior, str] | None:
    """Return the belief around the mean of the rule's value and those of the searches."""
    estimated = [(each, said) for each in lessons if (said := _estimate(domain, own, each)) is not None]
    if not estimated:
        return None
    estimates = [said for _, said in estimated]
    if isinstance(own, Normal):
        estimates.append(SourceEstimate(fraction_of(domain, own.centre), own.spread**2))
    together = pooled(estimates)
    confidence = confidence_in(together.variance)
    words = _number_words(domain, own, estimated, together)
    if confidence is None:
        return None if isinstance(own, Uniform) else (Uniform(), f"{words}, which leaves no belief")
    return Normal(_number_at(domain, together.value), confidence), words


def confidence_in(variance: float) -> Confidence | None:
    """Return the highest confidence whose spread is at least as wide; None where even the lowest is not."""
    wide = [name for name, spread in SPREADS.items() if spread**2 >= variance]
    return min(wide, key=SPREADS.__getitem__, default=None)


def _estimate(domain: Float | Integer, own: Uniform | Normal, lesson: Lesson) -> SourceEstimate | None:
    """Return where an earlier search expects the best value here, as a share of this range; None where it
    says nothing.

    Even draws know nothing, and yet their variance is finite. So their precision (1 / variance) is subtracted
    from that of the search.
    """
    if isinstance(lesson.domain, Choice) or (domain.log and lesson.domain.low <= 0):
        return None
    positions = [_position(domain, value) for value in lesson.optimum.values if is_number(value)]
    mean = sum(map(mul, lesson.optimum.shares, positions))
    variance = sum(map(mul, lesson.optimum.shares, ((each - mean) ** 2 for each in positions)))
    length = _position(domain, lesson.domain.high) - _position(domain, lesson.domain.low)
    even = EVEN_VARIANCE * length**2
    precision = even / max(variance, 1e-6 * even) - 1.0
    if precision < LEAST_KNOWN:
        return None
    if isinstance(own, Normal) and lesson.rule is not None and not (domain.log and lesson.rule <= 0):
        mean += fraction_of(domain, own.centre) - _position(domain, lesson.rule)
    return SourceEstimate(mean, even / precision + lesson.likeness.variance)


def _position(domain: Float | Integer, value: float) -> float:
    """Return a number's position on the scale of a range: 0 to 1 within the range, and beyond it outside."""
    low, high = _ends(domain)
    if domain.log:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)


def _number_at(domain: Float | Integer, position: float) -> float:
    """Return the number at a position of a range; for a position outside the range, the nearer end."""
    low, high = _ends(domain)
    number = low * (high / low) ** position if domain.log else low + (high - low) * position
    return min(max(number, float(domain.low)), float(domain.high))


def _ends(domain: Float | Integer) -> tuple[float, float]:
    """Return the ends of a range as `fraction_of` counts them."""
    beyond = 0.5 if isinstance(domain, Integer) else 0.0
    return domain.low - beyond, domain.high + beyond


def _number_words(
    domain: Float | Integer,
    own: Uniform | Normal,
    found: Sequence[tuple[Lesson, SourceEstimate]],
    together: Pooled,
) -> str:
    weights = together.shares
    said = [
        f"{lesson.search} expects {_number_at(domain, estimate.value):.3g} (weight {weight:.0%})"
        for (lesson, estimate), weight in zip(found, weights, strict=False)
    ]
    if isinstance(own, Normal):
        said.append(f"the rule {own.centre:.3g} (weight {weights[-1]:.0%})")
    differ = f"; they differ by ±{together.between**0.5:.0%} of the range" if together.between > 0.0 else ""
    return f"learned from {len(found)} of {LEARN_FROM}: {', '.join(said)}{differ}"


# --- options ------------------------------------------------------------------------------------------


def _learned_option(
    domain: Choice, own: Uniform | Weights, lessons: Sequence[Lesson]
) -> tuple[Prior, str] | None:
    """Return the rule's odds, multiplied by the weighted geometric mean of the searches' odds (a logarithmic
    opinion pool, Genest and Zidek, 1986, Statistical Science 1)."""
    options = domain.options
    said = [(each, _odds(domain, each)) for each in lessons if isinstance(each.domain, Choice)]
    said = [(each, odds) for each, odds in said if len(odds) > 1]
    total = max(1.0, sum(each.likeness.share for each, _ in said))
    factors = [
        math.prod(odds.get(at, 1.0) ** (each.likeness.share / total) for each, odds in said)
        for at in range(len(options))
    ]
    if not said or max(factors) < LEAST_CHANGE * min(factors):
        return None
    before = own.shares if isinstance(own, Weights) else (1.0 / len(options),) * len(options)
    after = Weights(tuple(share * factor for share, factor in zip(before, factors, strict=True)))
    return after, f"learned from {len(said)} of {LEARN_FROM}: {', '.join(_option_words(domain, said, total))}"


def _odds(domain: Choice, lesson: Lesson) -> dict[int, float]:
    """Return the odds of the options that both searches have, by their numbers in this domain.

    Their geometric mean is 1, and the largest is at most `MOST_ODDS` times the least. Empty where the earlier
    search says nothing of these options.
    """
    theirs = Choice(lesson.optimum.values)
    shares = {
        at: lesson.optimum.shares[index_of(theirs, option)]
        for at, option in enumerate(domain.options)
        if option in theirs
    }
    if not shares or max(shares.values()) == 0.0:
        return {}
    bounded = {at: max(share, max(shares.values()) / MOST_ODDS) for at, share in shares.items()}
    mean = math.exp(sum(math.log(share) for share in bounded.values()) / len(bounded))
    return {at: share / mean for at, share in bounded.items()}


def _option_words(
    domain: Choice, said: Sequence[tuple[Lesson, Mapping[int, float]]], total: float
) -> Iterator[str]:
    for lesson, odds in said:
        best = max(odds, key=odds.__getitem__)
        yield (
            f"{lesson.search} prefers {shown(domain.options[best])}, {odds[best]:.2g} times as likely to be "
            f"the best as a usual option (weight {lesson.likeness.share / total:.0%})"
        )


@dataclass(frozen=True)
class SourceEstimate:
    """What one source says of a number; the variance is above 0."""

    value: float
    variance: float


@dataclass(frozen=True)
class Pooled:
    """What all sources say together of the next one."""

    value: float
    variance: float  # it is at least `between`, the variance that their disagreement shows
    between: float
    shares: tuple[float, ...]  # the weight of each source; the sum is 1


def pooled(estimates: Sequence[SourceEstimate]) -> Pooled:
    """Return the weighted mean of at least one estimate, and the variance of a further source's number.

    The method is random-effects meta-analysis, that of DerSimonian and Laird (1986, Controlled Clinical
    Trials 7). The variance is that of what a further source would say (Higgins, Thompson and Spiegelhalter,
    2009, J. Royal Statistical Society A 172): a new search is such a source.
    """
    between = between_variance(estimates)
    weights = [1.0 / (each.variance + between) for each in estimates]
    total = sum(weights)
    value = sum(weight * each.value for weight, each in zip(weights, estimates, strict=True)) / total
    return Pooled(value, between + 1.0 / total, between, tuple(weight / total for weight in weights))


def between_variance(estimates: Sequence[SourceEstimate]) -> float:
    """Return by how much sources differ beyond their own variances (DerSimonian and Laird, equation 8)."""
    weights = [1.0 / each.variance for each in estimates]
    total = sum(weights)
    mean = sum(weight * each.value for weight, each in zip(weights, estimates, strict=True)) / total
    pairs = zip(weights, estimates, strict=True)
    misfit = sum(weight * (each.value - mean) ** 2 for weight, each in pairs)
    scale = total - sum(weight**2 for weight in weights) / total
    return max(0.0, (misfit - (len(estimates) - 1)) / scale) if scale > 0.0 else 0.0
