"""Says how trials stand against each other; every pair is compared at an epoch for which both have a score.

Pruned trials differ in length, and scores of different epochs cannot be compared. So no score is used as a
number: a trial's standing counts the trials that it beats. Each pair is compared at the last epoch that both
have reached and at which the search itself compares trials. Late epochs thus count wherever they exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spaces.domains import SpaceError
from spaces.space import Space

if TYPE_CHECKING:
    from search.record.summary import Summary
    from search.record.trials import Trial


LEAST_TRIALS = 8  # from fewer trials that have a result nothing is concluded of a search; our choice


def has_result(trial: Trial) -> bool:
    """Return whether a trial has ended with a score, or diverged."""
    return trial.state == "diverged" or (trial.state in ("finished", "stopped") and bool(trial.history))


def compared_epochs(summary: Summary) -> tuple[int, ...]:
    """Return the epochs at which this search compares trials, rising: the rungs reached, and the last."""
    rungs = {epoch.rung for trial in summary.trials for epoch in trial.history if epoch.rung is not None}
    return tuple(sorted({*rungs, summary.budget_epochs}))


def standings(summary: Summary) -> Mapping[int, float]:
    """Return by trial how many of 100 others it beats (a tie is half a win); 50 on average.

    Diverged trials lose to all that did not diverge. Left out are trials that failed, that have not ended, or
    that ended before the first epoch at which trials are compared.
    """
    import numpy as np

    from search.deciding.pairwise import wins

    epochs = compared_epochs(summary)
    compared = [trial for trial in summary.trials if trial.state == "diverged" or _lasted(trial, epochs[0])]
    if len(compared) < 2:
        return {}
    scores = np.full((len(compared), len(epochs)), np.nan)
    for row, trial in zip(scores, compared, strict=True):
        its_own = _scores(trial, epochs, summary.objective)
        row[: len(its_own)] = summary.sign * np.array(its_own)
    share = 50.0 + 50.0 * wins(scores) / (len(compared) - 1)
    return {trial.id: float(each) for trial, each in zip(compared, share, strict=True)}


def positions(space: Space, trial: Trial) -> dict[str, float] | None:
    """Return each value's position in its domain, by dimension name; None for no point of the space."""
    if trial.first is not None and trial.first.outside:
        return None
    try:
        return space.encode(trial.values)
    except SpaceError:
        return None


def _lasted(trial: Trial, mark: int) -> bool:
    return trial.state in ("finished", "stopped") and trial.epochs >= mark


def _scores(trial: Trial, epochs: Sequence[int], metric: str) -> list[float]:
    """Return a trial's scores at those of the epochs that it has reached; none for one that diverged."""
    if trial.state == "diverged":
        return []
    return [score for epoch, score in trial.scores(metric).items() if epoch in epochs]
