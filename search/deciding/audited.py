"""Chooses which of the trials that pruning stopped are trained to their end, to audit it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from search.record.summary import Summary


def sampled(summary: Summary, share: float, seed: int) -> list[int]:
    """Return the stopped trials that an audit of this share trains and that are not trained to the end yet.

    Of each rung's it is the share, rounded up, in a random order that `seed` decides: a larger share takes
    the same trials and more.
    """
    audited = {each.repeat.of for each in summary.repeats if each.repeat and each.repeat.purpose == "pruning"}
    chosen: list[int] = []
    for stopped in stopped_by_rung(summary).values():
        shuffled = np.random.default_rng((seed, len(stopped))).permutation(stopped)
        chosen += shuffled[: math.ceil(share * len(stopped))].tolist()
    return [number for number in chosen if number not in audited]


def stopped_by_rung(summary: Summary) -> Mapping[int, list[int]]:
    """Return the trials that were stopped at each rung. Those that a forecast stopped between rungs count at
    the one before; those that the hours cut short count nowhere."""
    found: dict[int, list[int]] = {}
    for trial in summary.trials:
        rungs = [event.rung for event in trial.history if event.rung is not None]
        if trial.end == "stopped" and not trial.is_cut_short and rungs:
            found.setdefault(rungs[-1], []).append(trial.id)
    return found
