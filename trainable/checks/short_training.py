"""What lessons of seconds share: how a net is trained in them, and when they say something."""

from __future__ import annotations

import time
from itertools import chain, count

from trainable.checks.finding import CheckName
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
SURE_DROP = 4.0  # a drop in a score on the same images must be so many standard errors

LAST = 0.3  # in this last part of its time, the rate of a training too slow for its steps falls to 0


def check_of(flip: Flip) -> CheckName:
    return "horizontal flip" if flip == "horizontal" else "vertical flip"


def train(run: Run, *, steps: int, lr: float, seconds: float) -> int:
    """Train a run in `probing` for so many steps, or fewer if time runs out. Return how many steps it took.

    The rate falls in a straight line to 0, so that the weights settle: with the steps, and faster in the last
    part of the time.
    """
    began = time.perf_counter()
    windows = chain.from_iterable(map(run.windows, count()))
    for done in range(steps):
        left = 1.0 - (time.perf_counter() - began) / seconds
        if left <= 0.0:
            return done
        run.train_on(next(windows), lr * min(1.0 - done / steps, left / LAST))
    return steps
