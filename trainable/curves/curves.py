"""Reads the curves of a run: how far apart training and validation are, and how much of it is noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean, median

from trainable.curves.levels import Levels
from trainable.training.metrics import EpochResult

SAME_RATE = 1.0 + 1e-6
"""A rate that grew by less has not risen."""


@dataclass(frozen=True)
class Thresholds:
    """Holds the limits between verdicts. Accuracies and gaps are fractions, a point is 0.01.

    Noise is the larger of two: a standard error of the validation accuracy, and how far it swings by itself.
    """

    overfit_gap: float = 0.05
    """Training is "much higher" than validation above this gap (PaddleClas guide, 003:84);
    the 5 points are ours."""
    underfit_gap: float = 0.01
    """Within a point, training and validation agree: "slightly higher or equal" is a good state (003:84)."""
    share_of_error: float = 0.1
    """A gap below a tenth of the training error does not limit the accuracy: work first on the larger of the
    two (Ng, Machine Learning Yearning, chapters 20 to 22; the tenth is ours)."""
    train_target: float = 0.95
    """Below this training accuracy, a net that generalises could still learn more of its images; ours."""
    train_saturated: float = 0.99
    """From this training accuracy on, more epochs have next to nothing left to learn from; ours."""
    standard_errors: float = 2.0
    """A difference of fewer standard errors is noise:
    95 in 100 draws of a normal distribution lie within 1.96."""
    least_rise: float = 0.005
    """A smaller rise over the last tenth of the epochs, here half a point,
    is not worth a longer run; ours."""
    last_part: float = 0.1
    """In this last share of the epochs, at least three, validation rises or not: there a cosine is below 3 %
    of its rate, so that a rise does not come from the schedule's last fall."""
    late_part: float = 0.25
    """In this last share of the epochs, at least four, swings count:
    before it, a high rate may still come to rest."""
    swing_epochs: int = 8
    """A shorter run has no late part: four epochs are more than half of it."""
    swing: float = 0.02
    """A swing is at least two points either way: more than most changes of a recipe gain (003:70-82: 0.1 to
    1.1), so that the epoch at which one stops decides more than the recipe."""
    collapse: float = 0.05
    """A fall from the best epoch by this much, in training accuracy too, is a collapse; it is as large as the
    gap of overfitting."""
    skipped_share: float = 0.01
    """More than this share of steps skipped for overflows is too much: a loss scale that doubles every 2,000
    steps (torch's GradScaler) costs one step in 2,000, twenty times fewer."""
    gradient_spike: float = 10.0
    """This is a late epoch's gradient norm over the run's median, if validation fell with it; ours."""
    lost_loss: float = 1.5
    """This is a training loss over that of guessing: a run that ends above has unlearnt; ours."""
    knocked_out: float = 1.2
    """This is a training loss over that of guessing in any epoch, for a net that has learnt nothing in the
    end: above it, the rate was too high. A fresh net begins within a tenth of ln K; digits at 20 times a good
    rate: 1.3 first, then 1.0."""
    learnt: float = 0.1
    """This is a share of the way from guessing to always right, in mean recall:
    less counts as nothing; ours."""
    image_deviation: float = 0.1
    """The mean IoU of one image is so far from that of another. It is not measured: nuclei have 0.02, and
    images in which objects are small or rare several times as much; ours."""
    raised_loss: float = 1.05
    """Above this training loss over that of guessing in any epoch, a higher rate is not proposed; ours."""


MASKS = Thresholds(train_target=0.9, train_saturated=0.95)
"""Of masks, levels are mean IoUs. An IoU of 0.9 is a Dice coefficient, the F1 of pixels, of 0.95, the target
of an accuracy; the last points are borders that nobody draws twice alike."""


class Curves:
    """Reads a history that did not end diverged, with its levels and the loss of guessing."""

    def __init__(
        self,
        history: tuple[EpochResult, ...],
        levels: Levels,
        classes: int,
        guessing: float,
        train_steps: int | None,
        validation_images: int | None,
        thresholds: Thresholds,
    ) -> None:
        self.thresholds, self.levels = thresholds, levels
        self._history, self._classes, self._guessing = history, classes, guessing
        self._train_steps = train_steps
        self._val = levels.validation
        self._rates = [result.applied_lr for result in history]
        self.train, self.gap = levels.train, levels.gap
        self.last_epochs = min(len(history), max(3, math.ceil(thresholds.last_part * len(history))))
        self.rise = _slope(self._val[-self.last_epochs :]) * (self.last_epochs - 1)
        self._late = max(4, math.ceil(thresholds.late_part * len(history)))
        self._swings = _swings(self._val[-self._late :], self._rates[-self._late :])
        self.fluctuation = fmean(self._swings) if self._swings else 0.0
        # of what validation would be without a gap, and of what it is: the larger one counts
        errors = [_standard_error(share, validation_images) for share in (self._val[-1], self.train)]
        of_masks = thresholds.image_deviation / math.sqrt(validation_images or math.inf)
        self.standard_error = of_masks if levels.dense else max(errors)

    def figures(self) -> dict[str, float]:
        """Return the numbers by name: scores as fractions;
        a name that ends in `_points` has hundredths."""
        skipped = {} if self._train_steps is None else {"skipped_share": self._skipped_share()}
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
        """Whether validation rises at the end, and above its earlier best:
        recovery from a dip is no rise."""
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
        """Whether a higher rate may be proposed:
        no epoch's training loss shows that the rate was too high already."""
        limit = self.thresholds.raised_loss * self._guessing
        return max(result.train_loss for result in self._history) <= limit

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
        limits, guessing = self.thresholds, self._guessing
        losses = [result.train_loss for result in self._history]
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
        """Return whether the late epochs change direction more often than not,
        in a run that is long enough for late ones."""
        often = 2 * sum(each > 0.0 for each in self._swings) > len(self._swings)
        return often and len(self._history) >= self.thresholds.swing_epochs

    def _fall(self) -> float:
        """Return the fall from the best three epochs to the last three;
        0 if the schedule has raised the rate since."""
        if len(self._val) < 6:
            return 0.0
        levels = [median(self._val[start : start + 3]) for start in range(len(self._val) - 2)]
        best = max(range(len(levels)), key=levels.__getitem__)
        risen = self._rates[-1] > min(self._rates[best:]) * SAME_RATE
        return 0.0 if risen else levels[best] - levels[-1]

    def _skipped_share(self) -> float:
        """Return the share of the late epochs' steps that were skipped;
        0 if the number of steps is not known."""
        if self._train_steps is None:
            return 0.0
        late = self._history[-self._late :]
        return fmean(result.skipped_steps for result in late) / max(1, self._train_steps)

    def _spike(self) -> float:
        """Return the largest gradient norm over the median,
        of late epochs in which validation fell beyond noise."""
        usual = median(result.grad_norm for result in self._history)
        pairs = list(zip(pairwise(self._val), self._history[1:], strict=True))[-self._late :]
        fell = [result for (before, after), result in pairs if before - after > self._visible()]
        norms = [result.grad_norm for result in fell]
        return max(norms, default=0.0) / usual if usual > 0.0 else 0.0

    def _has_learnt(self) -> bool:
        chance = 1.0 / max(self._classes, 2)
        way = (self._history[-1].val_balanced_accuracy - chance) / (1.0 - chance)
        return way > self.thresholds.learnt


def _slope(values: Sequence[float]) -> float:
    """Return the median slope of all pairs, an epoch (Theil and Sen), which no outlier tilts;
    0 for a single value."""
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


def _standard_error(accuracy: float, images: int | None) -> float:
    """Return the standard error of an accuracy on so many images. Two right and two wrong ones are added, so
    that it is never 0.

    It returns 0 if the number of images is not known, and where the accuracy is no fraction, as in a journal
    that a person has changed. Source: Agresti and Coull, The American Statistician 52 (1998).
    """
    if images is None:
        return 0.0
    share = (accuracy * images + 2.0) / (images + 4.0)
    return math.sqrt(max(0.0, share * (1.0 - share)) / (images + 4.0))
