"""Finds which learning rates a recipe can use, by a geometric sweep over its own batches,
with its own optimizer.

Smith, Cyclical Learning Rates, arXiv 1506.01186, section 3.3; PyTorch tuning guide, 001:22-76, whose own
finder leaves the weights spoilt. The result is a band: a prior for a search, never the answer.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, count
from statistics import fmean, median, stdev
from typing import Any

from trainable.errors import UserError
from trainable.recipe.optimizers import Optimizer
from trainable.stages import stage, track
from trainable.training.devices import ran_out
from trainable.training.optim import applied_lr
from trainable.training.run import Run

# The decay of the smoothing, as in 001. It lags, by 34 steps at the hundredth: suggestions err upwards.
BETA = 0.98
EXPLODED = 4.0  # a smoothed loss that is so many times the best ends a sweep (001)
# A sweep's ends are these multiples of the usual rate of the optimizer's kind, whatever the recipe's own rate
# is
BELOW, ABOVE = 1e-3, 1e4
LEAST_STEPS = 30  # with fewer, one step is a quarter of a decade or more
# In this share of the first steps, at least this number, the smoothed loss averages too few losses to be read
SETTLING, LEAST_SETTLING = 0.1, 5
# A fall by less than this share of the loss is no fall; nor is one by less than so many standard errors of
# what is compared: the first losses, and the least mean of `LAST` in a row. The smoothed loss is too slow to
# show it.
LEAST_FALL, NOISE = 0.02, 4.0
LEARNT = 1e-3  # losses below this share of the first say that the batches are known by heart
LAST = 5  # a minimum among so many last points says that the loss was still falling


@dataclass(frozen=True)
class Suggestions:
    """Three readings of a curve, as learning rates."""

    minimum_tenth: float  # a tenth of the rate at which the smoothed loss is least
    # Where it falls fastest with the logarithm of the rate. Since it lags, that is not far below the rate at
    # which the loss itself is least: mostly the upper end of the band
    steepest: float
    valley: float  # in the middle of its longest fall


@dataclass(frozen=True)
class Sweep:
    """One sweep of rates."""

    rates: tuple[float, ...]  # as applied, in order
    losses: tuple[float, ...]  # before the step at each rate
    smoothed: tuple[float, ...]
    exploded: bool  # the loss after these, which ended the sweep
    suggestions: Suggestions | None  # None if nothing can be read from the curve
    reason: str | None = None  # why nothing can be read


@dataclass(frozen=True)
class LrBand:
    """What the sweeps say together: the median of each suggestion, and the band that they span.

    Rates are as applied to the recipe's batch; multiplied by `at_256` they are in the recipe's own unit,
    `optimizer.lr`. If most sweeps say nothing there are no suggestions, and `reason` says why.
    """

    sweeps: tuple[Sweep, ...]
    at_256: float
    suggestions: Suggestions | None
    reason: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        return self.suggestions is not None

    @property
    def band(self) -> tuple[float, float] | None:
        """The least and the greatest suggestion, as applied."""
        if self.suggestions is None:
            return None
        values = asdict(self.suggestions).values()
        return min(values), max(values)

    @property
    def band_at_256(self) -> tuple[float, float] | None:
        """The band as values of `optimizer.lr`."""
        return None if self.band is None else (self.band[0] * self.at_256, self.band[1] * self.at_256)

    def tree(self) -> dict[str, Any]:
        """Return plain data, all numbers finite."""
        return {
            "found": self.found,
            "reason": self.reason,
            "notes": list(self.notes),
            "band": self.band,
            "band_at_256": self.band_at_256,
            "at_256": self.at_256,
            "suggestions": asdict(self.suggestions) if self.suggestions is not None else None,
            "sweeps": [asdict(sweep) for sweep in self.sweeps],
        }


def lr_find(
    run: Run, *, lowest: float | None = None, highest: float | None = None, steps: int = 100, sweeps: int = 3
) -> LrBand:
    """Return the band of learning rates that the loss of a run's own batches recommends.

    Args:
        lowest, highest: ends of the sweep, as applied; by default around the usual rate of the optimizer.
        steps: optimizer steps of a sweep, at least 30.
        sweeps: how many, each over other batches; the result is the median of what they say.

    The schedule is not used; of two optimizers the first is swept. The run is afterwards as it was. Raises
    UserError for impossible arguments, and if a batch does not fit into memory.
    """
    spec, batch = run.recipe.optimizer, run.recipe.loop.batch_size
    factor = spec.lr / applied_lr(spec, batch)
    low, high = _ends(spec, factor, lowest, highest)
    _check(low, high, steps, sweeps)
    rates = geometric(low, high, steps)
    with stage(f"trying {steps} rates in each of {sweeps} sweeps"):
        turns = track(range(sweeps), "sweep", sweeps)
        curves = tuple(_swept(run, rates, turn, sweeps) for turn in turns)
    said = [curve.suggestions for curve in curves if curve.suggestions is not None]
    if 2 * len(said) <= len(curves):
        reason = next(curve.reason for curve in curves if curve.suggestions is None)
        return LrBand(curves, factor, None, reason, _notes(run))
    return LrBand(curves, factor, _medians(said), notes=_notes(run))


def geometric(low: float, high: float, steps: int) -> list[float]:
    """Return rates from low to high, both included, each the same factor above the one before."""
    ratio = math.log(high / low) / (steps - 1)
    return [low * math.exp(ratio * step) for step in range(steps)]


def sweep(loss_at: Callable[[float], float], rates: Sequence[float]) -> Sweep:
    """Return a curve and its suggestions; `loss_at` steps at a rate and returns the loss before the step.

    The smoothed loss is EMA(0.98) / (1 - 0.98^i). The sweep ends when it is over 4 times its best, or when a
    loss is not finite; that point is no part of the curve.
    """
    losses: list[float] = []
    smoothed: list[float] = []
    average, exploded = 0.0, False
    for step, rate in enumerate(rates, start=1):
        loss = loss_at(rate)
        average = BETA * average + (1 - BETA) * loss
        value = average / (1 - BETA**step)
        exploded = not math.isfinite(value) or value > EXPLODED * min(smoothed, default=math.inf)
        if exploded:
            break
        losses.append(loss)
        smoothed.append(value)
    first = max(LEAST_SETTLING, round(SETTLING * len(rates)))
    reason = _unreadable(losses, smoothed, first, exploded)
    curve = tuple(rates[: len(losses)]), tuple(losses), tuple(smoothed)
    read = _read(rates[first : len(losses)], smoothed[first:]) if reason is None else None
    return Sweep(*curve, exploded, read, reason)


def valley(losses: Sequence[float]) -> int | None:
    """Return the position in the middle of a curve's longest fall, or None if it does not fall.

    The longest falling subsequence ends at position e after L points; S = L/3; the position is e - L + int(S)
    + int(S/2): a third and a sixth of the way down (fastai, callback/schedule.py).
    """
    ends: list[float] = []  # the greatest last loss, negated, of the falling subsequences of each length
    end = length = 0
    for position, loss in enumerate(losses):
        reached = bisect_left(ends, -loss)
        ends[reached : reached + 1] = [-loss]
        if reached + 1 > length:
            end, length = position, reached + 1
    section = length / 3
    return end - length + int(section) + int(section / 2) if length >= 3 else None


def _read(rates: Sequence[float], smoothed: Sequence[float]) -> Suggestions | None:
    least = min(range(len(smoothed)), key=smoothed.__getitem__)
    falling = range(1, least)
    steepest = min(falling, key=lambda at: smoothed[at + 1] - smoothed[at - 1], default=0)
    middle = valley(smoothed)
    if middle is None:
        return None
    return Suggestions(rates[least] / 10, rates[steepest], rates[middle])


def _unreadable(losses: Sequence[float], smoothed: Sequence[float], first: int, exploded: bool) -> str | None:
    """Return why nothing can be read from a curve, or None if something can."""
    if len(losses) < first + LAST:
        return f"the loss exploded within {len(losses)} steps: start the sweep at a lower rate"
    start = fmean(losses[:first])
    lowest = min(fmean(losses[at : at + LAST]) for at in range(first, len(losses) - LAST + 1))
    needed = max(LEAST_FALL * start, NOISE * stdev(losses[:first]) / math.sqrt(LAST))
    least = min(smoothed[first:])
    if start - lowest < needed or least == smoothed[first]:
        return (
            f"the loss hardly fell: {start:.4g} at the low rates, {lowest:.4g} at best; more steps may help"
        )
    if not exploded and least in smoothed[-LAST:]:
        if max(losses[-LAST:]) < LEARNT * start:
            return "the images were learnt before any rate was too high: take more images or fewer steps"
        return "the loss was still falling at the highest rate: end the sweep at a higher one"
    return None


def _medians(said: Sequence[Suggestions]) -> Suggestions:
    """Return medians on the logarithm, which matters for an even number only."""

    def middle(name: str) -> float:
        return math.exp(median(math.log(getattr(each, name)) for each in said))

    return Suggestions(middle("minimum_tenth"), middle("steepest"), middle("valley"))


def _swept(run: Run, rates: Sequence[float], turn: int, turns: int) -> Sweep:
    with run.probing():
        windows = chain.from_iterable(map(run.windows, count(turn, turns)))  # other epochs in each turn
        try:
            return sweep(lambda rate: float(run.train_on(next(windows), rate)), rates)
        except Exception as error:
            if not ran_out(error):
                raise
    raise UserError(
        f"loop.micro_batch: {run.micro_batch} images at once do not fit into the memory of {run.device}; "
        "`tunebook batch-find` says how many do"
    )


def _ends(spec: Optimizer, at_256: float, lowest: float | None, highest: float | None) -> tuple[float, float]:
    usual = type(spec)().lr / at_256
    return (
        lowest if lowest is not None else usual * BELOW,
        highest if highest is not None else usual * ABOVE,
    )


def _check(low: float, high: float, steps: int, sweeps: int) -> None:
    if not 0.0 < low < high < math.inf:
        raise UserError(f"lowest, highest: expected 0 < lowest < highest, got {low:g} and {high:g}")
    if steps < LEAST_STEPS:
        raise UserError(f"--steps: expected at least {LEAST_STEPS}, got {steps}")
    if sweeps < 1:
        raise UserError(f"sweeps: expected at least 1, got {sweeps}")


def _notes(run: Run) -> tuple[str, ...]:
    notes = []
    if run.epoch < run.recipe.model.freeze_epochs:
        notes.append("model.freeze_epochs: the body is frozen at first, so the band holds for the head alone")
    if (bounded := run.recipe.task.bounded_loss) is not None:
        notes.append(bounded)
    return tuple(notes)
