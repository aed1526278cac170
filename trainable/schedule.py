"""The learning rate's factor as a pure function of progress: nothing to save, nothing to drift."""

from __future__ import annotations

import math
from typing import assert_never

from trainable.specs import schedules


def factor(spec: schedules.Schedule, progress: float, epochs: int, step: float = 0.0) -> float:
    """What the base rate is multiplied by, in [0, 1], for the step that begins at `progress`.

    Args:
        progress: epochs done before the step, fractions included, in [0, epochs].
        epochs: length of the run.
        step: length of one step in epochs. Warm-up gives (t + 1) / w at its step t of w, so that the first
        step
            already moves and the last one has the whole rate (Goyal et al., arXiv 1706.02677, section 2.2).

    After warm-up the shape runs over what is left of the run. Shapes equal torch's schedulers of the same
    name.
    """
    warmup = spec.warmup_epochs
    if progress < warmup:
        return min(1.0, (progress + step) / warmup)
    return _shape(spec, progress - warmup, epochs - warmup)


def _shape(spec: schedules.Schedule, since: float, length: float) -> float:
    """The factor `since` epochs after warm-up, of `length` epochs."""
    position = min(1.0, since / length)
    match spec:
        case schedules.Constant():
            return 1.0
        case schedules.Cosine(final_factor=final):
            return final + (1.0 - final) * (1.0 + math.cos(math.pi * position)) / 2.0
        case schedules.Step(every=every, gamma=gamma):
            return float(gamma ** math.floor(position / every + 1e-9))  # 0.3 / 0.1 is 2.9999999999999996
        case schedules.Poly(power=power):
            return float((1.0 - position) ** power)
        case schedules.Exponential(gamma=gamma):
            return float(gamma**since)
        case _:
            assert_never(spec)
