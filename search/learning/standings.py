"""How trials stand against each other, and where in its range the better ones have a value.

Pruned trials differ in length, and scores of different epochs cannot be compared. So no score is used as a
number: a trial's standing counts the trials that it beats. Each pair is compared at the last epoch that both
have reached and at which the search itself compares trials. Late epochs thus count wherever they exist.

Trends over the standings come from the regression that the verdicts use (`search.learning.effects`): samplers
that learn draw late trials close together, also in dimensions that do nothing, so that a plain correlation
finds trends everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spaces.domains import Choice, SpaceError, Value, fraction_of
from spaces.space import Dimension, Space

if TYPE_CHECKING:
    from search.learning.effects import AgreementGain, Column
    from search.record.summary import Summary
    from search.record.trials import Trial

LEAST_TRIALS = 8  # from fewer trials that have a result nothing is concluded of a search; our choice
LEAST_WITH = 8  # a trend over fewer trials that have the dimension is luck; our choice
# smaller probabilities are reported as less than one in so many: the difference means nothing to a reader
RAREST = 1_000


def has_result(trial: Trial) -> bool:
    """Say whether a trial has ended with a score, or diverged."""
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
    compared = [
        trial
        for trial in summary.trials
        if trial.state == "diverged" or (trial.state in ("finished", "stopped") and trial.epochs >= epochs[0])
    ]
    if len(compared) < 2:
        return {}
    scores = np.full((len(compared), len(epochs)), np.nan)
    for row, trial in zip(scores, compared, strict=True):
        if trial.state != "diverged":
            by_epoch = trial.scores(summary.objective)
            reached = [score for epoch, score in by_epoch.items() if epoch in epochs]
            row[: len(reached)] = summary.sign * np.array(reached)
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


def by_luck(chance: float) -> str:
    """Return a probability in words: in how many searches luck alone would show as much."""
    text = "luck alone shows this in"
    if chance * RAREST < 1.0:
        return f"{text} less than 1 of {RAREST:,} searches"
    if chance < 0.1:
        return f"{text} 1 of {1.0 / chance:.0f} searches"
    return f"{text} {100.0 * chance:.0f} of 100 searches"


class Trends:
    """The standings of a search's trials, and each dimension's trend over them."""

    def __init__(self, space: Space, summary: Summary) -> None:
        self._space = space
        self.standings: Mapping[int, float] = standings(summary)  # by trial, how many of 100 others it beats
        drawn = [each for each in summary.trials if each.id in self.standings and not each.own]
        self._at = {each.id: at for each in drawn if (at := positions(space, each)) is not None}

    def chance_above(self, dimension: Dimension) -> float:
        """Return how likely trials would be so much better towards the upper end by luck alone.

        The dimension then does nothing. The rest to 1 is the probability for the lower end. It is a half
        where too few trials have the dimension.
        """
        return self._chance(dimension, self._of(dimension))

    def chance_with(self, dimension: Dimension, option: Value) -> float:
        """Return how likely trials with an option would be so much better if the option did nothing."""
        at = fraction_of(dimension.domain, option)
        places = self._of(dimension)
        has = [math.nan if math.isnan(each) else float(math.isclose(each, at)) for each in places]
        return self._chance(dimension, has)

    def _chance(self, dimension: Dimension, agreement: Sequence[float]) -> float:
        """Return the one-sided probability of the trend over `asked`, the other dimensions being equal."""
        distinct = {each for each in agreement if not math.isnan(each)}
        if sum(not math.isnan(each) for each in agreement) < LEAST_WITH or len(distinct) < 2:
            return 0.5
        gain = self._estimate(dimension, agreement)
        if not gain.error > 0.0:
            return 0.5
        return gain.chance / 2.0 if gain.slope > 0.0 else 1.0 - gain.chance / 2.0

    def _estimate(self, dimension: Dimension, agreement: Sequence[float]) -> AgreementGain:
        import numpy as np

        from search.learning.effects import estimate

        standing = np.array([self.standings[trial] for trial in self._at])
        others = [self._column(each, self._of(each)) for each in self._space.dimensions if each != dimension]
        return estimate(standing, np.array(list(self._at), float), self._column(dimension, agreement), others)

    def _of(self, dimension: Dimension) -> list[float]:
        """Return where in its domain each trial lies, nan where it does not have the dimension."""
        return [at.get(dimension.name, math.nan) for at in self._at.values()]

    def _column(self, dimension: Dimension, agreement: Sequence[float]) -> Column:
        import numpy as np

        from search.learning.effects import column

        at = np.array(self._of(dimension), float)
        return column(np.array(agreement, float), at, options=isinstance(dimension.domain, Choice))
