"""Computes rate and momentum as pure functions of progress, so nothing is saved and nothing can drift."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import assert_never

from trainable.recipe import schedules

ROUNDING = 1e-9  # so far a quotient may be below a whole number: 0.3 / 0.1 is 2.9999999999999996


def factor(spec: schedules.Schedule, progress: float, epochs: int, step: float = 0.0) -> float:
    """Return the factor of the base rate, in [0, 1], for the step that begins at `progress`.

    Args:
        progress: epochs done before the step, fractions included, in [0, epochs].
        epochs: length of the run.
        step: length of one step in epochs. Warm-up gives (t + 1) / w at its step t of w, so that the first
            step already moves and the last one has the whole rate (Goyal et al., arXiv 1706.02677, section
            2.2). A 1cycle's legs end with their last step, not after it, so that the run's last step has the
            lowest rate.

    After warm-up the shape covers the rest of the run. Shapes equal torch's schedulers of the same name, step
    by step.
    """
    warmup = spec.warmup_epochs
    if progress < warmup:
        return min(1.0, (progress + step) / warmup)
    return _shape(spec, progress - warmup, epochs - warmup, step)


def momentum(spec: schedules.Schedule, progress: float, epochs: int, step: float = 0.0) -> float | None:
    """Return the momentum that the schedule asks for, or None if it does not change the optimizer's.

    The arguments are those of `factor`. A 1cycle's momentum is highest where the rate is lowest, through
    warm-up too (Smith, arXiv 1803.09820, section 4.3).
    """
    if not isinstance(spec, schedules.OneCycle) or not spec.cycle_momentum:
        return None
    since = max(0.0, progress - spec.warmup_epochs)
    return _along_legs(spec, leg_momenta(spec), since, epochs - spec.warmup_epochs, step)


def leg_rates(spec: schedules.OneCycle) -> tuple[float, ...]:
    """Return the factors of the rate at the ends of a 1cycle's legs."""
    begin, end = 1.0 / spec.div, 1.0 / spec.div / spec.final_div
    return (begin, 1.0, begin, end) if spec.equal_legs else (begin, 1.0, end)


def leg_momenta(spec: schedules.OneCycle) -> tuple[float, ...]:
    """Return the momenta at the ends of a 1cycle's legs."""
    low, high = spec.momentum_low, spec.momentum_high
    return (high, low, high, high) if spec.equal_legs else (high, low, high)


def cycle_ends(spec: schedules.Schedule, epochs: int) -> tuple[int, ...]:
    """Return the epochs, in (0, epochs], after which the rate is at the low end of a cycle, if it has any.

    Scores compare at these epochs only (Loshchilov and Hutter, arXiv 1608.03983, section 3). Ends within an
    epoch are left out, since nothing is scored there: a warm-up or a cycle of 2.5 epochs loses some of them.
    """
    match spec:
        case schedules.SGDR(cycle_epochs=first, growth=growth):
            pass
        case schedules.Cyclic(rise_epochs=rise):
            first, growth = 2.0 * rise, 1
        case _:
            return ()
    return tuple(
        epoch for epoch in range(1, epochs + 1) if _begins_anew(epoch - spec.warmup_epochs, first, growth)
    )


def _begins_anew(since: float, first: float, growth: int) -> bool:
    begin, length = _cycle(since, first, growth)
    return begin > 0.0 and since - begin <= 2.0 * ROUNDING * length


def _shape(spec: schedules.Schedule, since: float, length: float, step: float) -> float:
    """Return the factor `since` epochs after warm-up, after which the run has `length` epochs."""
    position = min(1.0, since / length)
    match spec:
        case schedules.Constant():
            return 1.0
        case schedules.Cosine(final_factor=final):
            return _half_cosine(1.0, final, position)
        case schedules.Step(every=every, gamma=gamma):
            return float(gamma ** math.floor(position / every + ROUNDING))
        case schedules.Poly(power=power):
            return float((1.0 - position) ** power)
        case schedules.Exponential(gamma=gamma):
            return float(gamma**since)
        case schedules.SGDR(cycle_epochs=first, growth=growth, final_factor=final):
            begin, cycle = _cycle(since, first, growth)
            return _half_cosine(1.0, final, max(0.0, since - begin) / cycle)
        case schedules.OneCycle():
            return _along_legs(spec, leg_rates(spec), since, length, step)
        case schedules.Cyclic(lowest=lowest):
            return lowest + (1.0 - lowest) * _triangle(spec, since)
        case _:
            assert_never(spec)


def _half_cosine(begin: float, end: float, position: float) -> float:
    return end + (begin - end) * (1.0 + math.cos(math.pi * position)) / 2.0


def _cycle(since: float, first: float, growth: int) -> tuple[float, float]:
    """Return where the current cycle began and how long it is, in epochs; the first one's length is `first`.

    Lengths are counted in first cycles, which are whole numbers: a logarithm would miss 3**5.
    """
    elapsed = since / first + ROUNDING
    if growth == 1:
        return math.floor(elapsed) * first, first
    begin, length = 0, 1
    while begin + length <= elapsed:
        begin, length = begin + length, length * growth
    return begin * first, length * first


def _along_legs(
    spec: schedules.OneCycle, values: Sequence[float], since: float, length: float, step: float
) -> float:
    """Interpolate between the values at the ends of a 1cycle's legs, `since` epochs after it began."""
    ends = legs(spec, length, step)
    leg = next((leg for leg in range(1, len(ends)) if since <= ends[leg]), len(ends) - 1)
    begin, end = ends[leg - 1], ends[leg]
    position = min(1.0, (since - begin) / (end - begin)) if begin < end else 1.0
    if spec.anneal == "cosine":
        return _half_cosine(values[leg - 1], values[leg], position)
    return values[leg - 1] + (values[leg] - values[leg - 1]) * position


def legs(spec: schedules.OneCycle, length: float, step: float) -> tuple[float, ...]:
    """Return where the legs begin and end, in epochs after warm-up; in a run of a few steps one may be
    empty."""
    up = max(0.0, spec.rise * length - step)
    end = max(up, length - step)
    return (0.0, up, 2.0 * up, end) if spec.equal_legs else (0.0, up, end)


def _triangle(spec: schedules.Cyclic, since: float) -> float:
    """Return the height in [0, 1] `since` epochs after warm-up (Smith, arXiv 1506.01186, section 3)."""
    cycles, position = divmod(since / (2.0 * spec.rise_epochs), 1.0)
    height = 1.0 - abs(2.0 * position - 1.0)
    match spec.mode:
        case "triangular":
            return height
        case "triangular2":
            return float(height * 0.5**cycles)
        case "exp_range":
            return float(height * spec.gamma**since)
        case _:
            assert_never(spec.mode)
