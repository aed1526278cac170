"""Asks what a search that is over says about the next one.

The questions are those of Google's Deep Learning Tuning Playbook, "Extracting insight from experimental
results": is the search space large enough, what part of the trials diverged, what do the best trials' curves
say, and ("Determining whether to adopt a training pipeline change") is the winner known? Where the playbook
has no number, the number is ours, and is marked so.

Nothing is written here: `search.learning.refine` makes a study of the proposals.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from search.learning.curves import of_curves
from search.learning.divergence import diverged_at_any_rate, rates_too_high
from search.learning.edges import edge, limit_of
from search.learning.evidence import Evidence, LeftAlone, SearchFinding
from search.learning.noise import of_noise
from search.learning.standings import LEAST_TRIALS
from spaces.domains import Choice


def audit(evidence: Evidence) -> Iterator[SearchFinding | LeftAlone]:
    """Yield the findings, and what was examined and left alone, in the order of the questions.

    Yield nothing where fewer than `LEAST_TRIALS` trials say something.
    """
    if len(evidence.compared_trials) < LEAST_TRIALS:
        return
    changed: set[str] = set()
    for question in (_of_ranges, of_curves, of_noise):
        for each in question(evidence, frozenset(changed)):
            yield each
            if isinstance(each, SearchFinding):
                changed |= {proposed.path for proposed in each.proposed_edits}


def _of_ranges(evidence: Evidence, changed: Set[str]) -> Iterator[SearchFinding | LeftAlone]:
    """Examines each range of numbers in turn, then the diverged trials that no rate explains."""
    ranges = [
        (each, each.domain) for each in evidence.space.dimensions if not isinstance(each.domain, Choice)
    ]
    explained = False
    for dimension, domain in ranges:
        cut = rates_too_high(evidence, dimension)
        if cut is not None:
            explained = True
            yield cut[0]
        at_edge = edge(evidence, dimension, cut[1] if cut else domain, limit_of(len(ranges)))
        if cut is None or isinstance(at_edge, SearchFinding):
            yield at_edge
    if not explained:
        yield from diverged_at_any_rate(evidence, changed)
