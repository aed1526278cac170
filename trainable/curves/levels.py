"""How good a run became, where the limits between the verdicts on it lie, and how much of a score is luck.

Levels are scores in [0, 1]: for labels of images their accuracy. What a task is scored by otherwise stands in
its home.

Luck is asked about in three ways, and each has its own answer:

- *What is one score worth, for other images?* Its standard error, `error_of_share`. Asked while trials are
  trained: whether more of them should gain more than that (`budget.no_gain`). Known of metrics between 0 and
  1; a study for another one is refused.
- *Is another run better?* The noise of a run: twice the standard error of its score, or twice how far it
  swings from epoch to epoch, whichever is more (`Curves.noise`, in a diagnosis `noise_points`). Asked when
  trials have ended: from which on nothing was gained. `TaskCurves.noise` says of which metric it is known.
- *Do two recipes differ on the same images?* `TOLD_APART`, so many images that one of them alone has right.
  Asked of the best trials: whether they have reached the ceiling of their part, and whether it is known which
  is best. `TaskCurves.mistakes` says of which metric it can be asked.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from trainable.training.metrics import EpochResult, beta_quantile


@dataclass(frozen=True)
class Thresholds:
    """The limits between verdicts. Accuracies and gaps are fractions, a point is 0.01.

    Noise is the larger of two: a standard error of the validation accuracy, and how far it swings by itself.
    """

    # Training is "much higher" than validation above this gap (PaddleClas guide, 003:84); the 5 points are
    # ours
    overfit_gap: float = 0.05
    # Within a point, training and validation agree: "slightly higher or equal" is a good state (003:84)
    underfit_gap: float = 0.01
    # A gap below a tenth of the training error does not limit the accuracy: work first on the larger of the
    # two (Ng, Machine Learning Yearning, chapters 20 to 22; the tenth is ours)
    share_of_error: float = 0.1
    # Below this training accuracy, a net that generalises could still learn more of its images; ours
    train_target: float = 0.95
    # From this training accuracy on, more epochs have next to nothing left to learn from; ours
    train_saturated: float = 0.99
    # A difference of fewer standard errors is noise: 95 in 100 draws of a normal distribution lie within 1.96
    standard_errors: float = 2.0
    # A smaller rise over the last tenth of the epochs, here half a point, is not worth a longer run; ours
    least_rise: float = 0.005
    # In this last share of the epochs, at least three, validation rises or not: there a cosine is below 3 %
    # of its rate, so that a rise does not come from the schedule's last fall
    last_part: float = 0.1
    # In this last share of the epochs, at least four, swings count: before it, a high rate may still come to
    # rest
    late_part: float = 0.25
    swing_epochs: int = 8  # a shorter run has no late part: four epochs are more than half of it
    # A swing is at least two points either way: more than most changes of a recipe gain (003:70-82: 0.1 to
    # 1.1), so that the epoch at which one stops decides more than the recipe
    swing: float = 0.02
    # A fall from the best epoch by this much, in training accuracy too, is a collapse; it is as large as the
    # gap of overfitting
    collapse: float = 0.05
    # More than this share of steps skipped for overflows is too much: a loss scale that doubles every 2,000
    # steps (torch's GradScaler) costs one step in 2,000, twenty times fewer
    skipped_share: float = 0.01
    # A late epoch's gradient norm over the run's median, if validation fell with it; ours
    gradient_spike: float = 10.0
    lost_loss: float = 1.5  # a training loss over that of guessing: a run that ends above has unlearnt; ours
    # A training loss over that of guessing in any epoch, for a net that has learnt nothing in the end: above
    # it, the rate was too high. A fresh net begins within a tenth of ln K; digits at 20 times a good rate:
    # 1.3 first, then 1.0.
    knocked_out: float = 1.2
    # A share of the way from guessing to always right, in mean recall: less counts as nothing; ours
    learnt: float = 0.1
    # Above this training loss over that of guessing in any epoch, a higher rate is not proposed; ours
    raised_loss: float = 1.05


# --- luck -----------------------------------------------------------------------------------------------


def error_of_share(score: float, images: int) -> float:
    """Return the standard error of a score between 0 and 1 on so many images; 0 for what is no such score, as
    in a journal that a person has changed.

    Of the mean of N values between 0 and 1 it is (p (1 - p) / N) ** 0.5 at most (Bhatia and Davis 2000,
    American Mathematical Monthly 107, 353-357). Two right and two wrong ones are added, so that it is never 0
    for a score of 1 (Agresti and Coull 1998, The American Statistician 52, 119-126).
    """
    share = (score * images + 2.0) / (images + 4.0)
    return math.sqrt(max(0.0, share * (1.0 - share)) / (images + 4.0))


def noise_in(figures: Mapping[str, float]) -> float | None:
    """Return the noise of a run by the figures of its diagnosis; None for one that diverged."""
    return figures["noise_points"] / 100.0 if "noise_points" in figures else None


# Two recipes that are scored on the same images differ by more than luck if one alone is right on so many of
# them, and the other alone on none: then the exact form of McNemar's test (1947, Psychometrika 12, 153-157)
# has p = 2 * 0.5 ** 6 = 0.03, with one image fewer 0.06. Where the other is right somewhere too, more are
# needed. Dietterich (1998, Neural Computation 10, 1895-1923) recommends this test for two classifiers
TOLD_APART = 6
CEILING_SHARE = 0.05  # more mistakes than this share are no ceiling, however few the images are; ours


def at_ceiling(mistakes: int | None, images: int) -> bool:
    """Say whether so few mistakes on so many images leave no room above: not even a recipe without a mistake
    would differ by more than luck. None is an unknown number of mistakes."""
    return mistakes is not None and mistakes < TOLD_APART and mistakes <= CEILING_SHARE * images


def least_accuracy(mistakes: int, images: int) -> float:
    """Return the lower end of the 95 % interval of the accuracy on all images of this kind, after so many
    mistakes on some of them: the exact interval of Clopper and Pearson (1934, Biometrika 26, 404-413)."""
    return 0.0 if mistakes >= images else beta_quantile(0.025, images - mistakes, mistakes + 1)


def mistakes_in_words(mistakes: int) -> str:
    return {0: "no mistake", 1: "1 mistake"}.get(mistakes, f"{mistakes} mistakes")


@dataclass(frozen=True)
class Levels(abc.ABC):
    """Scores of validation, one an epoch, and of training images at the end."""

    limits: ClassVar[Thresholds]  # between verdicts, unless others are given
    not_clean: ClassVar[str]  # what is less sure if training images were scored unlike validation images

    validation: tuple[float, ...]
    train: float
    is_clean: bool  # training images were scored as validation images are
    figures: dict[str, float]  # the scores of the last epoch by their names

    @property
    def gap(self) -> float:
        return self.train - self.validation[-1]

    @property
    @abc.abstractmethod
    def train_in_words(self) -> str:
        """How good training images are, in words that begin a sentence or follow "only"."""

    @property
    @abc.abstractmethod
    def left_in_words(self) -> str:
        """What is left to learn of the training images."""

    @abc.abstractmethod
    def standard_error(self, images: int | None) -> float:
        """Return the standard error of a score of so many validation images; 0 if their number is not
        known."""


class Accuracies(Levels):
    """Shares of images, or of pixels, that are right."""

    limits = Thresholds()
    not_clean = (
        "clean_train_accuracy was not measured: train_accuracy stands in, on augmented images, whose gap to "
        "validation is too small"
    )

    @property
    def train_in_words(self) -> str:
        return f"{self.train:.1%} of the training images are right"

    @property
    def left_in_words(self) -> str:
        return f"{1 - self.train:.1%} of the training images are still wrong"

    def standard_error(self, images: int | None) -> float:
        # of what validation would be without a gap, and of what it is: the larger one counts
        if images is None:
            return 0.0
        return max(error_of_share(share, images) for share in (self.validation[-1], self.train))


def accuracies_of(history: Sequence[EpochResult]) -> Accuracies:
    """Return the accuracies of a run that did not end diverged."""
    last = history[-1]
    clean = last.clean_train_accuracy
    train = last.train_accuracy if clean is None else clean
    name = "train_accuracy" if clean is None else "clean_train_accuracy"
    figures = {name: train, "val_accuracy": last.val_accuracy}
    return Accuracies(tuple(result.val_accuracy for result in history), train, clean is not None, figures)
