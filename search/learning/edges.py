"""Asks whether the search space is large enough: it finds ranges whose best value lies at an end."""

from __future__ import annotations

from search.learning.evidence import PLAYBOOK, Evidence, LeftAlone, ProposedEdit, SearchFinding, overridden
from search.learning.ranges import NumberRange, RangeEnd, reaching, wider, written
from search.learning.trends import by_luck
from spaces.domains import Choice, Domain, fraction_of, is_number
from spaces.space import Dimension

EDGE = 0.1  # the best value lies "close to" an end of its range within this part of it; our choice
# chance alone may show this many trends over all ranges of a search, at either end; our choice
FALSE_SHARE = 0.1
SOURCE = f"{PLAYBOOK}, Identifying bad search space boundaries"


def limit_of(ranges: int) -> float:
    """Return the probability below which a trend towards one end is believed, by the number of ranges."""
    return FALSE_SHARE / 2.0 / ranges


def edge(
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
    position = f"the best trial has {value:.3g}, {_position(dimension.domain, value)}"
    end = _near(dimension.domain, value)
    if end is None:
        return LeftAlone(dimension.name, position)
    above = evidence.trends.chance_above(dimension)
    chance = above if end == "upper" else 1.0 - above
    if chance >= limit:
        why = f"but that trials are better towards its {end} end may be luck: {by_luck(chance)}"
        return LeftAlone(dimension.name, f"{position}, {why}")
    better = f"trials are better towards its {end} end, other values accounted for: {by_luck(chance)}"
    return SearchFinding(
        "edge",
        dimension.name,
        f"{position}; {better}",
        f"within {EDGE:.0%} of an end or beyond it, and a trend that luck alone shows in fewer than 1 of "
        f"{1.0 / limit:.0f} searches (1 of {1.0 / FALSE_SHARE:.0f} over all ranges and ends)",
        f"{SOURCE}; the limits are ours",
        (ProposedEdit(overridden(dimension.name), _forms(domain, end, value), _why(value, end)),),
    )


def _forms(domain: NumberRange, end: RangeEnd, value: float) -> tuple[dict[str, object], ...]:
    """Return wider ranges, widest first; if the best value lies far beyond the end, those that reach it."""
    grown = wider(domain, end)
    if value not in domain:
        grown = [each for each in (*grown, reaching(domain, value)) if each is not None and value in each]
    return tuple(written(each, value) for each in grown)


def _why(value: float, end: RangeEnd) -> str:
    return f"the best trial's {value:.3g} lies at the {end} end, and trials are better towards it"


def _position(domain: Domain, value: float) -> str:
    """Return in words where a value lies; the documented recipe may lie beyond an end."""
    if value in domain:
        return f"at {fraction_of(domain, value):.0%} of {domain}"
    return f"outside of {domain}"


def _near(domain: Domain, value: float) -> RangeEnd | None:
    """Return the end that a value lies close to, or beyond; None where it lies near neither."""
    assert not isinstance(domain, Choice)
    if value <= domain.low or value >= domain.high:
        return "lower" if value <= domain.low else "upper"
    at = fraction_of(domain, value)
    return "lower" if at <= EDGE else "upper" if at >= 1.0 - EDGE else None
