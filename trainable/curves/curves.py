"""Reads the curves of a run: how far apart training and validation are, and how much of it is noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean, median

from trainable.curves.levels import Levels, Thresholds
from trainable.training.metrics import EpochResult

SAME_RATE = 1.0 + 1e-6  # a rate that grew by less has not risen


@dataclass
class Curves:
    """A history that did not end diverged, read against thresholds."""

    history: tuple[EpochResult, ...]
    levels: Levels
    classes: int
    guessing: float  # the loss of a network that knows nothing
    train_steps: int | None  # of an epoch, if it is known
    validation_images: int | None

    def __post_init__(self) -> None:
        limits, epochs = self.thresholds, len(self.history)
        self._val = self.levels.validation
        self._rates = [result.applied_lr for result in self.history]
        self.train, self.gap = self.levels.train, self.levels.gap
        self.last_epochs = min(epochs, max(3, math.ceil(limits.last_part * epochs)))
        self.rise = _slope(self._val[-self.last_epochs :]) * (self.last_epochs - 1)
        self._late = max(4, math.ceil(limits.late_part * epochs))
        self._swings = _swings(self._val[-self._late :], self._rates[-self._late :])
        self.fluctuation = fmean(self._swings) if self._swings else 0.0
        self.standard_error = self.levels.standard_error(self.validation_images)

    @property
    def thresholds(self) -> Thresholds:
        return self.levels.limits

    def figures(self) -> dict[str, float]:
        """Return the numbers by name: scores as fractions; a name that ends in `_points` has hundredths."""
        skipped = {} if self.train_steps is None else {"skipped_share": self._skipped_share()}
        return {
            **self.levels.figures,
            "gap_points": 100.0 * self.gap,
            "noise_points": 100.0 * self.noise,
            "rise_points": 100.0 * self.rise,
            "swing_points": 100.0 * self.fluctuation,
            "fall_points": 100.0 * self._fall(),
            "best_epoch": float(1 + self._val.index(max(self._val))),
            "epochs": float(len(self._val)),
            "rate_left": self.rate_left,
            **skipped,
        }

    # --- how far apart, and what of it is noise

    @property
    def noise(self) -> float:
        return self.thresholds.standard_errors * max(self.standard_error, self.fluctuation)

    @property
    def agreement(self) -> float:
        """The largest gap that does not matter."""
        limits = self.thresholds
        return max(limits.underfit_gap, self.noise, limits.share_of_error * (1.0 - self.train))

    @property
    def overfit_limit(self) -> float:
        return max(self.thresholds.overfit_gap, self.agreement)

    @property
    def rises(self) -> bool:
        """Whether validation rises at the end, and above its earlier best: recovery from a dip is no rise."""
        visible = max(self.thresholds.least_rise, self.noise)
        before, recent = self._val[: -self.last_epochs], self._val[-self.last_epochs :]
        return self.rise > visible and max(recent) - max(before, default=0.0) > visible

    @property
    def rate_left(self) -> float:
        """The last rate over the highest; 0 if all are 0."""
        highest = max(self._rates)
        return self._rates[-1] / highest if highest > 0.0 else 0.0

    @property
    def rate_may_rise(self) -> bool:
        """Whether a higher rate may be proposed: no epoch's training loss shows that the rate was too high
        already."""
        limit = self.thresholds.raised_loss * self.guessing
        return max(result.train_loss for result in self.history) <= limit

    # --- whether the end can be trusted

    def signs_of_instability(self) -> Iterator[str]:
        limits = self.thresholds
        if self._swings_throughout() and self.fluctuation > self._visible():
            points = f"{100 * self.fluctuation:.1f} points"
            yield f"validation swings by {points} from epoch to epoch, {self.rate_left:.0%} of the rate left"
        if self._fall() > max(limits.collapse, 2 * self.noise) and self.gap <= self.overfit_limit:
            yield f"validation fell {100 * self._fall():.1f} points below its best, and training fell with it"
        if (share := self._skipped_share()) > limits.skipped_share:
            yield f"{share:.1%} of the last epochs' steps were skipped: gradients overflow"
        if self._spike() >= limits.gradient_spike:
            yield f"a late gradient is {self._spike():.0f} times the median, and validation fell with it"
        yield from self._signs_in_the_loss()

    def _signs_in_the_loss(self) -> Iterator[str]:
        limits, guessing = self.thresholds, self.guessing
        losses = [result.train_loss for result in self.history]
        if losses[-1] > limits.lost_loss * guessing:
            yield f"the training loss ends at {losses[-1]:.3g}, guessing costs at most {guessing:.3g}"
        elif max(losses) > limits.knocked_out * guessing and not self._has_learnt():
            loss = f"the training loss was {max(losses):.3g} at worst, guessing costs at most {guessing:.3g}"
            yield f"{loss}; the net has hardly learnt"

    def _visible(self) -> float:
        """Return by how much one epoch's validation accuracy must differ to say anything."""
        limits = self.thresholds
        return max(limits.swing, limits.standard_errors * self.standard_error)

    def _swings_throughout(self) -> bool:
        """Return whether the late epochs change direction more often than not, in a run that is long enough
        for late ones."""
        often = 2 * sum(each > 0.0 for each in self._swings) > len(self._swings)
        return often and len(self.history) >= self.thresholds.swing_epochs

    def _fall(self) -> float:
        """Return the fall from the best three epochs to the last three; 0 if the schedule has raised the rate
        since."""
        if len(self._val) < 6:
            return 0.0
        levels = [median(self._val[start : start + 3]) for start in range(len(self._val) - 2)]
        best = max(range(len(levels)), key=levels.__getitem__)
        risen = self._rates[-1] > min(self._rates[best:]) * SAME_RATE
        return 0.0 if risen else levels[best] - levels[-1]

    def _skipped_share(self) -> float:
        """Return the share of the late epochs' steps that were skipped; 0 if the number of steps is not
        known."""
        if self.train_steps is None:
            return 0.0
        late = self.history[-self._late :]
        return fmean(result.skipped_steps for result in late) / max(1, self.train_steps)

    def _spike(self) -> float:
        """Return the largest gradient norm over the median, of late epochs in which validation fell beyond
        noise."""
        usual = median(result.grad_norm for result in self.history)
        pairs = list(zip(pairwise(self._val), self.history[1:], strict=True))[-self._late :]
        fell = [result for (before, after), result in pairs if before - after > self._visible()]
        norms = [result.grad_norm for result in fell]
        return max(norms, default=0.0) / usual if usual > 0.0 else 0.0

    def _has_learnt(self) -> bool:
        chance = 1.0 / max(self.classes, 2)
        way = (self.history[-1].val_balanced_accuracy - chance) / (1.0 - chance)
        return way > self.thresholds.learnt


def _slope(values: Sequence[float]) -> float:
    """Return the median slope of all pairs, an epoch (Theil and Sen), which no outlier tilts; 0 for a single
    value."""
    pairs = combinations(enumerate(values), 2)
    return median([(there - here) / (later - first) for (first, here), (later, there) in pairs] or [0.0])


def _swings(values: Sequence[float], rates: Sequence[float]) -> list[float]:
    """Return, at each inner value, the smaller of the steps to and from it if they are opposite, else 0.

    A curve that only rises, or only falls, swings nowhere, however bent it is. Values where the rate rose, as
    at SGDR's restarts, are left out: there the schedule swings.
    """
    found = []
    for index in range(1, len(values) - 1):
        if rates[index - 1] * SAME_RATE < rates[index] or rates[index] * SAME_RATE < rates[index + 1]:
            continue
        to, onwards = values[index] - values[index - 1], values[index + 1] - values[index]
        found.append(min(abs(to), abs(onwards)) if to * onwards < 0.0 else 0.0)
    return found
