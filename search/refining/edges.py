"""Is the search space large enough? Ranges whose best value lies at an end."""

from __future__ import annotations

from search.refining.evidence import PLAYBOOK, Evidence, Finding, Kept, Proposal, overridden
from search.refining.ranges import End, Range, wider, written
from spaces.domains import Choice, Domain, fraction_of, is_number, shown
from spaces.space import Dimension

EDGE = 0.1
"""The best value lies "close to" an end of its range within this part of it; ours."""
FALSE_SHARE = 0.1
"""Chance alone may show this many trends over all ranges of a search, at either end; ours."""
SOURCE = f"{PLAYBOOK}, Identifying bad search space boundaries"


def limit_of(ranges: int) -> float:
    """The chance below which a trend towards one end is believed, where a search has so many ranges."""
    return FALSE_SHARE / 2.0 / ranges


def edge(evidence: Evidence, dimension: Dimension, domain: Range, limit: float) -> Finding | Kept:
    """A range to widen, or why it is left; `domain` is what an earlier finding has left of the dimension's.

    "A search space is suspicious if the best point sampled from it is close to its boundary" (the playbook).
    That holds for every fifth dimension that does nothing, so trials must also be better towards that end. Of
    720 healthy planted searches (tests/search/test_refine_planted.py with more seeds; 3 to 17 dimensions; TPE
    with 16 to 48 trials, random draws with 24) 19 had a range widened for which nothing spoke.
    """
    value = evidence.best_value(dimension)
    if not is_number(value):
        return Kept(dimension.name, "the best trial does not have it")
    if value not in dimension.domain:
        return Kept(dimension.name, f"the best trial has {shown(value)}, outside of {dimension.domain}")
    at = fraction_of(dimension.domain, value)
    place = f"the best trial has {value:.3g}, at {at:.0%} of {dimension.domain}"
    end = _near(dimension.domain, value, at)
    if end is None:
        return Kept(dimension.name, place)
    above = evidence.trends.chance_above(dimension)
    chance = above if end == "upper" else 1.0 - above
    if chance >= limit:
        why = f"but that trials are better towards its {end} end may be luck (chance {chance:.2g})"
        return Kept(dimension.name, f"{place}, {why}")
    better = f"trials are better towards its {end} end (chance {chance:.1g}, other values accounted for)"
    return Finding(
        "edge",
        dimension.name,
        f"{place}; {better}",
        f"within {EDGE:.0%} of an end, and a chance below {limit:.2g} (0.1 over all ranges and ends)",
        f"{SOURCE}; the limits are ours",
        (Proposal(overridden(dimension.name), _forms(domain, end, value), _why(value, end)),),
    )


def _forms(domain: Range, end: End, value: float) -> tuple[dict[str, object], ...]:
    return tuple(written(each, value) for each in wider(domain, end))


def _why(value: float, end: End) -> str:
    return f"the best trial's {value:.3g} lies at the {end} end, and trials are better towards it"


def _near(domain: Domain, value: float, at: float) -> End | None:
    assert not isinstance(domain, Choice)
    if at <= EDGE or value == domain.low:
        return "lower"
    return "upper" if at >= 1.0 - EDGE or value == domain.high else None
