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
    import numpy as np
    from numpy.typing import NDArray

    from search.record.summary import Summary
    from search.record.trials import Trial


def compared_epochs(summary: Summary) -> tuple[int, ...]:
    """Returns the epochs at which this search compares trials, rising: the rungs reached, and the last."""
    rungs = {epoch.rung for trial in summary.trials for epoch in trial.history if epoch.rung is not None}
    return tuple(sorted({*rungs, summary.budget_epochs}))


def standings(summary: Summary) -> Mapping[int, float]:
    """Returns by trial how many of 100 others it beats (a tie is half a win); 50 on average.

    Diverged trials lose to all that did not diverge. Left out are trials that failed, that have not ended, or
    that ended before the first epoch at which trials are compared.
    """
    import numpy as np

    epochs = compared_epochs(summary)
    compared = [trial for trial in summary.trials if trial.state == "diverged" or _lasted(trial, epochs[0])]
    if len(compared) < 2:
        return {}
    scores = [_scores(trial, epochs, summary.objective) for trial in compared]
    reached = np.array([len(each) for each in scores])
    wins = np.where(reached > 0, (reached == 0).sum(), -(reached > 0).sum())
    for number in range(len(epochs)):
        there = np.array([summary.sign * each[number] if number < len(each) else 0.0 for each in scores])
        has, goes_on = reached > number, reached > number + 1
        wins[has] += _wins(there[has])
        wins[goes_on] -= _wins(there[goes_on])  # these meet later
    share = 50.0 + 50.0 * wins / (len(compared) - 1)
    return {trial.id: float(each) for trial, each in zip(compared, share, strict=True)}


def positions(space: Space, trial: Trial) -> dict[str, float] | None:
    """Returns each value's position in its domain, by dimension name; None for no point of the space."""
    if trial.first is not None and trial.first.outside:
        return None
    try:
        return space.encode(trial.values)
    except SpaceError:
        return None


def _wins(scores: NDArray[np.float64]) -> NDArray[np.intp]:
    """Returns how many of the scores each one is above, less how many are above it: by sorting, since 10,000
    trials make 50 million pairs."""
    import numpy as np

    ranked = np.sort(scores)
    return np.searchsorted(ranked, scores, "left") + np.searchsorted(ranked, scores, "right") - len(ranked)


def _lasted(trial: Trial, mark: int) -> bool:
    return trial.state in ("finished", "stopped") and trial.epochs >= mark


def _scores(trial: Trial, epochs: Sequence[int], metric: str) -> list[float]:
    """Returns a trial's scores at those of the epochs that it has reached; none for one that diverged."""
    if trial.state == "diverged":
        return []
    return [score for epoch, score in trial.scores(metric).items() if epoch in epochs]
