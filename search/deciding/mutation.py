"""Changes good trials a little: the rows around a row, and the trials worth changing.

Local search around the best at the highest fidelity is what PriorBand does with its incumbents (Mallik et
al., arXiv 2306.12370, section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from search.deciding.cube import Cube, Rows
from search.deciding.observations import Told, levels_of

ENOUGH = 3
"""A level needs so many trials before the best of them are worth changing."""
BEST_SHARE = 1 / 3
"""This share of a level's trials is changed."""
MOVED, SWITCHED = 0.5, 0.25
"""The probabilities that a number moves, and that an option becomes another one."""


def incumbents(told: Sequence[Told]) -> list[Told]:
    """Returns the best third of the trials at the highest level that has enough of them, the best first."""
    for level in reversed(levels_of(told)):
        here = [each for each in told if level in each.scores and each.outcome in ("finished", "stopped")]
        if len(here) >= ENOUGH:
            best_first = sorted(here, key=lambda each: (-each.scores[level], each.trial))
            return best_first[: max(1, math.ceil(len(here) * BEST_SHARE))]
    return []


def mutations(cube: Cube, parent: Rows, step: float, count: int, rng: np.random.Generator) -> Rows:
    """Returns `count` rows near a trial's row. At least one coordinate of each moves.

    A number moves by a normal step with the standard deviation `step`, a share of its range, and stops at the
    ends, where the best value may lie; an option becomes any other one. What the parent does not have, but
    the new row does, is drawn evenly."""
    shape = count, len(parent)
    has = ~np.isnan(parent)
    kept = np.where(has, parent, rng.random(shape))
    moves = has & (rng.random(shape) < np.where(cube.is_choice, SWITCHED, MOVED))
    moves[np.arange(count), rng.choice(np.flatnonzero(has), count)] = True
    stepped = np.clip(kept + step * rng.normal(size=shape), 0.0, 1.0)
    moved = np.where(cube.is_choice, (kept + cube.to_other_options(rng.random(shape))) % 1.0, stepped)
    return cube.exact(np.where(moves, moved, kept))
