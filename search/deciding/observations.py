"""What a sampler was told, as scores at a few epochs that one model can learn from.

A **level** is an epoch at which trials ended: a rung, or the last epoch. Each trial counts at every level
that it reached, and where it ended. All these scores are ranked together, and a rank becomes a normal score,
the quantile of the standard normal distribution at its share: so a model sees the same numbers whatever the
metric is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata

from search.deciding.beliefs import SortKey, rank_of
from search.deciding.cube import Cube, CubeRows, DimensionMask
from search.record.journal import TrialEnd
from search.study.objective import above_limits
from spaces.domains import Value
from trainable.recipe.metrics import Mode
from trainable.training.metrics import sign_of

MOST_LEVELS = 6  # where trials end at more epochs than that, levels are those at which most of them did
# the best of a level's trials are worth changing: this share of them, once it has so many
BEST_SHARE, ENOUGH_TO_CHANGE = 1 / 3, 3
DECIMALS = 6  # positions that are equal when rounded so stand for one value


@dataclass(frozen=True)
class Observation:
    """What is known of a trial: how it ended, or how far it is.

    `scores` are by epoch; higher is better, whatever the metric's direction.
    """

    trial: int
    row: CubeRows
    outcome: TrialEnd
    scores: Mapping[int, float]
    excess: float  # how far it is above the limits of its costs; 0 for a trial that breaks none
    seconds: float | None  # what its epochs took on average; None where it trained none
    rank: SortKey  # where it stands among all trials, by the epochs that it reached and then by its score

    @cached_property
    def end(self) -> tuple[int, float] | None:
        """The last epoch with a score, and that score; None where it diverged or breaks a constraint."""
        if self.outcome in ("diverged", "infeasible"):
            return None
        last = max(self.scores)
        return last, self.scores[last]


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """The n scores of trials at levels."""

    # higher is better, (n,); -inf for a trial that diverged or breaks a constraint
    scores: NDArray[np.float64]
    places: NDArray[np.int64]  # which of the trials each score is of, (n,)
    trials: Sequence[CubeRows]  # the row of each trial
    epochs: NDArray[np.float64]  # (n,)
    # from 1, the worst, to n, (n,); equal scores share the mean of their ranks. A diverged trial ranks below
    # all scores, and one that breaks a constraint below all diverged ones, by how far it does
    ranks: NDArray[np.float64]
    levels: Sequence[int]  # as `levels_of` returns them

    def rows(self, places: NDArray[np.int64]) -> CubeRows:
        """Return the rows of the trials at these places, (places, dimensions)."""
        return np.array([self.trials[place] for place in places])

    def by_level(self) -> NDArray[np.float64]:
        """Return each trial's scores at the levels, (trials, levels); NaN where it has none."""
        scores = np.full((len(self.trials), len(self.levels)), np.nan)
        for column, level in enumerate(self.levels):
            at = (self.epochs == level) & np.isfinite(self.scores)
            scores[self.places[at], column] = self.scores[at]
        return scores

    @cached_property
    def at_last_level(self) -> ScoreTable:
        """The scores of the last level alone."""
        at = self.epochs == self.epochs.max()
        ranks: NDArray[np.float64] = rankdata(self.ranks[at])
        return ScoreTable(
            self.scores[at], self.places[at], self.trials, self.epochs[at], ranks, self.levels[-1:]
        )

    @cached_property
    def normal_scores(self) -> NDArray[np.float64]:
        """The quantiles of the standard normal distribution at the ranks' shares, (n,)."""
        return self._normal(self.ranks)

    def normal_scores_of(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return those that other finite scores would have, (m,) of (m,)."""
        ordered = np.sort(self.scores)
        places = np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right")
        return self._normal(np.clip((places + 1) / 2, 1.0, len(ordered)))

    @cached_property
    def stretched(self) -> NDArray[np.float64]:
        """The normal scores up to the median, and above it the scores themselves on the scale of the normal
        ones, (n,): half-rank warping (Song et al., arXiv 2408.11527). It matters how far the best trials are
        ahead, and not how bad the bad ones are."""
        stretched = self.normal_scores.copy()
        finite = self.scores[np.isfinite(self.scores)]
        above = self.scores > (np.median(finite) if len(finite) else np.inf)
        if above.any():
            at_median = ndtri(np.mean(~above))
            distances = self.scores[above] - np.median(finite)
            scale = np.sqrt(np.mean((stretched[above] - at_median) ** 2) / np.mean(distances**2))
            stretched[above] = at_median + scale * distances
        return stretched

    def times_of(self, epochs: NDArray[np.float64] | int) -> NDArray[np.float64]:
        """Return epochs on the logarithmic scale that ends in 1 at the last one seen."""
        last = float(self.epochs.max())
        return np.log(epochs) / np.log(last) if last > 1.0 else np.ones(np.shape(epochs))

    def _normal(self, ranks: NDArray[np.float64]) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = ndtri((ranks - 0.5) / len(self.ranks))
        return scores


class Observations:
    """What is told of trials, in order.

    A trial that passed a rung, or paused and went on, is told of more than once: what was told last counts.
    """

    def __init__(self, cube: Cube, direction: Mode) -> None:
        self._cube = cube
        self._direction = direction
        self._rows: dict[int, CubeRows | None] = {}
        self._tried: set[bytes] = set()  # the keys of all rows
        self._open: dict[int, None] = {}
        # for each change, in order: the trial, and what is known of it since then; None where nothing is
        self._history: list[tuple[int, Observation | None]] = []
        self._latest: dict[int, Observation] = {}
        self._score_table: ScoreTable | None = None

    def add(self, number: int, values: Mapping[str, Value]) -> None:
        """Remember a trial that has not ended."""
        self._rows[number] = row = self._cube.row(values)
        self._open[number] = None
        if row is not None:
            self._tried.update(_keys(row[None]))

    def report(self, number: int, scores: Mapping[int, float], seconds: float | None = None) -> None:
        """Learn the scores so far of a trial that trains on: it counts as if it had been stopped there."""
        self.tell(number, "stopped", scores, {}, seconds)
        self._open[number] = None

    def tell(
        self,
        number: int,
        outcome: TrialEnd,
        scores: Mapping[int, float],
        excesses: Mapping[str, float],
        seconds: float | None = None,
    ) -> Observation | None:
        """Learn how a trial ended. Nothing is learnt from one that failed, that was stopped before its first
        score, or that no model can place, because a value lies outside its domain: then it returns None, and
        nothing that was told of the trial counts."""
        self._score_table = None
        self._open.pop(number, None)
        known = self._latest.pop(number, None)
        excess = above_limits(excesses)
        row, rank = self._rows[number], rank_of(outcome, scores, self._direction, excess)
        if row is None or rank is None or (outcome == "stopped" and not scores):
            if known is not None:
                self._history.append((number, None))
            return None
        sign = sign_of(self._direction)
        signed = {epoch: sign * score for epoch, score in scores.items()}
        observed = Observation(number, row, outcome, signed, excess, seconds, rank)
        self._history.append((number, observed))
        self._latest[number] = observed
        return observed

    @property
    def times_observed(self) -> int:
        """How often something was learnt or unlearnt."""
        return len(self._history)

    @property
    def observed(self) -> list[Observation]:
        """What is known now of each trial that has ended, has paused or has passed a rung."""
        return list(self._latest.values())

    def first_observed(self, times: int) -> list[Observation]:
        """Return what was known of each trial when `times_observed` was so much."""
        return [each for each in dict(self._history[:times]).values() if each is not None]

    def score_table(self) -> ScoreTable:
        """Return the scores at all levels that are known now; something must have been learnt."""
        if self._score_table is None:
            self._score_table = score_table(self.observed)
        return self._score_table

    def row(self, number: int) -> CubeRows | None:
        """Return a trial's row; None where it has none."""
        return self._rows.get(number)

    def are_new(self, rows: CubeRows) -> DimensionMask:
        """Return which of the rows no trial has, (rows,): the same recipe twice ends with the same score."""
        return np.array([key not in self._tried for key in _keys(rows)])

    def trains(self, number: int) -> bool:
        """Whether a trial trains or waits to: so it has passed the rung of its last score, if it has one."""
        return number in self._open

    def open_rows(self) -> CubeRows:
        """Return the rows of the trials that train or wait to, (trials, dimensions)."""
        rows = [row for number in self._open if (row := self._rows[number]) is not None]
        return np.array(rows).reshape(-1, len(self._cube))


def _keys(rows: CubeRows) -> list[bytes]:
    """Return a key of each row; rows with the same values have the same."""
    return [row.tobytes() for row in np.nan_to_num(rows, nan=-1.0).round(DECIMALS)]


def levels_of(observed: Iterable[Observation]) -> list[int]:
    """Return the epochs at which trials ended, rising. The last one is always among them."""
    ends = Counter(each.end[0] for each in observed if each.end is not None)
    if not ends:
        return []
    last = max(ends)
    often = [epoch for epoch, _ in ends.most_common(MOST_LEVELS) if epoch != last]
    return [*sorted(often[: MOST_LEVELS - 1]), last]


def incumbents(observed: Sequence[Observation]) -> list[Observation]:
    """Return the best third of the trials at the highest level that has enough of them, the best first.

    Local search around the best at the highest fidelity is what PriorBand does with its incumbents (Mallik et
    al., arXiv 2306.12370, section 4.2).
    """
    for level in reversed(levels_of(observed)):
        here = [each for each in observed if level in each.scores and each.outcome in ("finished", "stopped")]
        if len(here) >= ENOUGH_TO_CHANGE:
            best_first = sorted(here, key=lambda each: (-each.scores[level], each.trial))
            return best_first[: max(1, math.ceil(len(here) * BEST_SHARE))]
    return []


def score_table(observed: Sequence[Observation]) -> ScoreTable:
    """Return the scores that the trials have at all levels."""
    levels = levels_of(observed)
    worst = levels[0] if levels else 1, -math.inf
    ends, end_scores = np.array([each.end or worst for each in observed]).T
    epochs = np.array([*(np.full(len(observed), level) for level in levels), ends], float).T
    scores = np.full(epochs.shape, np.nan)
    for column, level in enumerate(levels):
        beyond = np.flatnonzero(ends > level).tolist()
        scores[beyond, column] = [observed[at].scores.get(level, math.nan) for at in beyond]
    scores[:, -1] = end_scores
    counts = ~np.isnan(scores)
    counts[:, -1] = True
    places, _ = np.nonzero(counts)
    excesses = np.array([trial.excess if trial.outcome == "infeasible" else 0.0 for trial in observed])
    ranks = _ranks(scores[counts], excesses[places])
    return ScoreTable(scores[counts], places, [each.row for each in observed], epochs[counts], ranks, levels)


def _ranks(scores: NDArray[np.float64], above: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks, from 1, by what is above limits (less is better) and then by score."""
    ranks: NDArray[np.float64] = rankdata(scores)
    broken = above > 0
    ranks[broken] = rankdata(-above[broken])
    ranks[~broken] = broken.sum() + rankdata(scores[~broken])
    return ranks
