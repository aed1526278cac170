"""What lessons of seconds share: how a net is trained in them, and when they say something."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import chain, count
from typing import NamedTuple

from trainable.checks.finding import CheckName, Finding
from trainable.data.source import Flip
from trainable.training.run import Run

SURE = 4.0  # what is so many standard errors above chance is known: luck gives that once in 30,000

LEAST_STEPS = 100  # after fewer steps, nothing can be said of a small net that has not learnt
# After fewer steps on what belongs to other images, nothing can be said of a network that knows no more
LEAST_SHUFFLED_STEPS = 10

FEWEST = 5  # a class with fewer training images is learnt by heart or not at all

# A standard error of a validation score above so many points hides most differences between recipes: the
# gains of the documents' table (PaddleClas guide, 003:70-82) are about one point each
NOISE_POINTS = 5.0

# --- mirror images (training tricks notes, 000:22)

# If a net loses more than this share of its skill on mirror images, the mirror is said to change labels. A
# net that saw no mirror image lost nothing on CIFAR-10, 0.2 on clothes, and 0.6 and more on digits and signs.
LOST_SKILL = 0.35
HARMLESS_LOSS = 0.05  # a loss of skill up to this share means that a mirror costs nothing
LEAST_SKILL = 0.3  # a net with less skill than this cannot say what a mirror does
INTERVAL = 1.96  # so many standard errors around the share that is lost are its interval of 95 %

LESSON = 0.2  # a lesson has this share of the time of all checks (`--seconds`)
LAST = 0.3  # in this last part of its time, the rate of a training too slow for its steps falls to 0


def check_of(flip: Flip) -> CheckName:
    return "horizontal flip" if flip == "horizontal" else "vertical flip"


@dataclass(frozen=True)
class LostSkill:
    """The share of what a net knows of images that it does not know of their mirrors, and its standard
    error."""

    share: float
    error: float

    @property
    def low(self) -> float:
        return self.share - INTERVAL * self.error

    @property
    def high(self) -> float:
        return self.share + INTERVAL * self.error

    def __str__(self) -> str:
        return f"{self.share:.0%} of what it knows is lost, 95 % interval {self.low:.0%} to {self.high:.0%}"

    @property
    def changes(self) -> bool | None:
        """Whether the mirror changes labels; None where nobody can tell."""
        if self.low > LOST_SKILL:
            return True
        return False if self.high <= LOST_SKILL else None

    @property
    def is_harmless(self) -> bool | None:
        """Whether the mirror costs nothing; None where nobody can tell."""
        if self.low > HARMLESS_LOSS:
            return False
        return True if self.share <= HARMLESS_LOSS and self.high <= LOST_SKILL else None


def cannot_tell(flip: Flip, why: str, do: str = "") -> Finding:
    """Return that a lesson does not say whether mirror images are still of their class."""
    means = "whether labels survive the mirror is for you to say (data.flips)"
    return Finding(check_of(flip), "note", f"cannot tell: {why}", means, do)


def cut_short(flip: Flip, steps: int, whole: int, seconds: float) -> Finding:
    """Return that the clock, which gave a lesson so many seconds, ended it before its whole number of steps,
    and what to type to have it answered: its rest, and as much again for a busier machine."""
    why = (
        f"there was time for {steps} of the {whole} steps of the lesson: this machine is slow, or busy "
        "with other work"
    )
    needed = max(2.0, 1.5 * whole / max(1, steps)) * seconds / LESSON
    return cannot_tell(flip, why, f"type the same command with --seconds {60 * math.ceil(needed / 60)}")


class Taught(NamedTuple):
    """How a small training went."""

    steps: int
    hurried: bool  # the clock ended it or lowered its rate, so that a slower machine would learn less


def train(run: Run, *, steps: int, lr: float, seconds: float) -> Taught:
    """Train a run in `probing` for so many steps, or fewer if time runs out.

    The rate falls in a straight line to 0, so that the weights settle: with the steps, and faster in the last
    part of the time.
    """
    began, hurried = time.perf_counter(), False
    windows = chain.from_iterable(map(run.windows, count()))
    for done in range(steps):
        left = 1.0 - (time.perf_counter() - began) / seconds
        if left <= 0.0:
            return Taught(done, hurried=True)
        hurried = hurried or left / LAST < 1.0 - done / steps
        run.train_on(next(windows), lr * min(1.0 - done / steps, left / LAST))
    return Taught(steps, hurried)
