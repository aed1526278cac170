"""Defines what one epoch of training reports: the only names of metrics, each with its unit; and the
distributions that intervals of scores follow from.

Student's t and the beta distribution come from the regularised incomplete beta function, by its continued
fraction (DLMF 8.17.22, https://dlmf.nist.gov/8.17): they are all of SciPy that reading a search needs, and a
test compares them with SciPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from statistics import NormalDist
from typing import Any, Self

from trainable.recipe.metrics import SCORE_OF_KIND, Mode, ScoreFacts
from trainable.recipe.tasks import TASKS

TINY = 1e-300  # in place of a zero that would be divided by (Thompson and Barnett, 1986, J. Comput. Phys. 64)
EXACT = 1e-15  # relative change of the fraction by its last step
MANY = 1e5  # degrees of freedom: with more the fraction is slow, and its factor inexact
# Every run measures these. The loss is the log-loss.
ALWAYS: dict[str, ScoreFacts] = {
    "val_accuracy": ScoreFacts(),
    "val_balanced_accuracy": ScoreFacts(counts_classes_alike=True),
    "val_top5_accuracy": ScoreFacts(),
    "val_loss": ScoreFacts("min", is_share=False),
}
SCORES = ALWAYS | {
    f"val_{name}": score
    for some in (*(task.scores for task in TASKS.values()), SCORE_OF_KIND)
    for name, score in some.items()
}
# A search may optimise these, in this direction, and functions of its caller's
OBJECTIVES: dict[str, Mode] = {name: score.mode for name, score in SCORES.items()}
SHARES = frozenset(name for name, score in SCORES.items() if score.is_share)
CLASSES_ALIKE = frozenset(name for name, score in SCORES.items() if score.counts_classes_alike)


def sign_of(direction: Mode) -> float:
    """Return 1 where a higher value is better, -1 where a lower one is."""
    return 1.0 if direction == "max" else -1.0


@dataclass(frozen=True, kw_only=True)
class EpochResult:
    """The numbers of one epoch; every one is finite, also when the run diverged.

    Accuracies are fractions in [0, 1]; losses are nats an image. Training figures are measured on the
    augmented images that were trained on, `val_*` on the whole validation part, with averaged weights if
    `regularisation.averaging` says so. Each score of a diverged epoch is `worst(metric, classes)`.
    """

    epoch: int  # counts the epochs done, from 1
    train_loss: float
    train_accuracy: float
    val_loss: float
    val_accuracy: float
    val_balanced_accuracy: float  # the mean recall over the classes that the validation part contains
    val_top5_accuracy: float | None  # None for ten classes or fewer
    applied_lr: float  # the learning rate that the epoch's last step used, after scaling with the batch
    # The mean L2 norm of the gradient before clipping, over the steps that measure it: every step if
    # gradients are clipped by norm or scaled, else every eighth
    grad_norm: float
    skipped_steps: int  # counts the optimizer steps that were skipped because an fp16 gradient overflowed
    # Training and evaluation together took this time, also where an earlier process began the epoch
    epoch_seconds: float
    data_seconds: float  # training waited for batches for this time
    evaluation_seconds: float
    images_per_second: float  # training images divided by training seconds
    # The most GPU memory used since the run began. On a CPU it is the most that the process has used since it
    # started, so in a search's actor, which trains one trial after the other, it may be an earlier trial's
    # peak.
    peak_memory_bytes: int
    # A rank trained on at most so many images at once in the last step: fewer than asked for if memory ran
    # out
    micro_batch: int
    # Measured in the last epoch, on the training images (a sample if there are many), not augmented, as
    # validation images are scored
    clean_train_accuracy: float | None = None
    # A teacher answered for this time, which is part of `epoch_seconds`; None without a teacher
    teacher_seconds: float | None = None
    # By how much the first step took longer than the epoch's others on average, which is part of
    # `epoch_seconds`; None but in the first epoch that a process trains of a run
    first_step_extra_seconds: float | None = None
    # In a search, a process of the trial took this time to start, to make the run and to load it, which is no
    # part of `epoch_seconds`; None but in the first epoch that it trains of the trial
    starting_seconds: float | None = None
    # In a search, checkpoints of this epoch took this time to write, which is no part of `epoch_seconds`
    checkpoint_seconds: float | None = None
    diverged: bool = False
    # What `evaluation.metrics` and the caller's own functions ask for, by name, such as `val_macro_f1`
    extra_metrics: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        numbers = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, value in [*numbers.items(), *self.extra_metrics.items()]:
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} must be finite, got {value}")

    def metrics(self) -> dict[str, float]:
        """Return the numbers by name, without `epoch`, `diverged` and those that are None."""
        named = {
            name: value
            for name, value in vars(self).items()
            if value is not None and name not in ("epoch", "diverged", "extra_metrics")
        }
        return {**named, **self.extra_metrics}

    def score(self, objective: str) -> float | None:
        """Return the value of an objective, or None if it was not measured."""
        if objective in ALWAYS:
            value: float | None = getattr(self, objective)
            return value
        return self.extra_metrics.get(objective)

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> Self:
        return cls(**tree)

    def tree(self) -> dict[str, Any]:
        return asdict(self)


def total_teacher_seconds(history: Iterable[EpochResult]) -> float | None:
    """Return for how long a teacher answered in all epochs; None without one."""
    found = [each.teacher_seconds for each in history if each.teacher_seconds is not None]
    return sum(found) if found else None


def worst(metric: str, classes: int) -> float:
    """Return the worst finite value of a metric that every run measures:
    0 for accuracies, ten times the loss of guessing for losses.

    Guessing uniformly among K classes costs ln K nats; a run that diverged ranks behind any that guesses.
    """
    return 0.0 if ALWAYS[metric].mode == "max" else 10.0 * math.log(max(classes, 2))


def wilson_interval(right: int, images: int, level: float = 0.95) -> tuple[float, float]:
    """Return the interval of a share, such as accuracy or a recall, of which so many images were answered
    rightly (Wilson 1927, J. American Statistical Association 22)."""
    share, z = right / images, NormalDist().inv_cdf(0.5 + level / 2.0)
    shrunk = 1.0 + z * z / images
    centre = (share + z * z / (2.0 * images)) / shrunk
    half = z * math.sqrt(share * (1.0 - share) / images + (z / (2.0 * images)) ** 2) / shrunk
    # of none or all the bounds are 0 and 1, which rounding misses
    return (centre - half if right else 0.0), (centre + half if right < images else 1.0)


def beta_below(x: float, a: float, b: float) -> float:
    """Return the probability that a beta variable of parameters `a` and `b`, both above 0, is below `x`."""
    return _beta_below(x, 1.0 - x, a, b)


def beta_quantile(share: float, a: float, b: float) -> float:
    """Return what a beta variable is below with the probability `share`, in [0, 1]."""
    return _where(lambda x: beta_below(x, a, b) >= share, 0.0, 1.0)


def student_below(t: float, freedom: float) -> float:
    """Return the probability that a variable with Student's t distribution is below `t`; with more than
    MANY degrees of freedom nearly (Abramowitz and Stegun 1964, 26.7.8)."""
    square = t * t
    if freedom > MANY:
        z = t * (1.0 - 0.25 / freedom) / math.sqrt(1.0 + 0.5 * square / freedom)
        return 0.5 * math.erfc(-z / math.sqrt(2.0))
    both = _beta_below(freedom / (freedom + square), square / (freedom + square), freedom / 2.0, 0.5)
    return both / 2.0 if t < 0.0 else 1.0 - both / 2.0


def student_quantile(share: float, freedom: float) -> float:
    """Return what a variable with Student's t distribution is below with the probability `share`, in (0, 1);
    with more than MANY degrees of freedom by its expansion around the normal distribution (Abramowitz and
    Stegun 1964, 26.7.5)."""
    if freedom > MANY:
        z = NormalDist().inv_cdf(share)
        return (
            z
            + (z**3 + z) / (4.0 * freedom)
            + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * freedom * freedom)
        )
    if share > 0.5:  # probabilities near 0 are exact, those near 1 are rounded
        return -student_quantile(1.0 - share, freedom)
    low = -1.0
    while student_below(low, freedom) > share:
        low *= 2.0
    return _where(lambda t: student_below(t, freedom) >= share, low, 0.0)


def _where(reached: Callable[[float], bool], low: float, high: float) -> float:
    """Return the least number between two at which something is reached, by halving the interval."""
    while low < (middle := (low + high) / 2.0) < high:
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _beta_below(x: float, rest: float, a: float, b: float) -> float:
    """Return `beta_below` where `rest` is 1 - x, which may be too small to be seen in x."""
    if x <= 0.0 or rest <= 0.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # there the fraction converges slowly, and from the other end quickly
        return 1.0 - _beta_below(rest, x, b, a)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    return math.exp(logarithm) / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction 1 + d1 / (1 + d2 / (1 + ...)), by Lentz's method from its start."""
    value, above, below, step = 1.0, 1.0, 0.0, 0
    while True:
        step += 1
        m = step // 2
        if step % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        below = 1.0 / (1.0 + d * below or TINY)
        above = 1.0 + d / above or TINY
        change = above * below
        value *= change
        if not abs(change - 1.0) > EXACT:  # nan ends it, too
            return value
