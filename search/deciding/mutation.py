"""Changes good trials a little: the rows around a row, and the trials worth changing.

Local search around the best at the highest fidelity is what PriorBand does with its incumbents (Mallik et
al., arXiv 2306.12370, section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from search.deciding.cube import Cube, CubeRows
from search.deciding.observations import Observation, levels_of

ENOUGH = 3  # a level needs so many trials before the best of them are worth changing
BEST_SHARE = 1 / 3  # this share of a level's trials is changed
MOVED, SWITCHED = 0.5, 0.25  # the probabilities that a number moves, and that an option becomes another one


def incumbents(observed: Sequence[Observation]) -> list[Observation]:
    """Return the best third of the trials at the highest level that has enough of them, the best first."""
    for level in reversed(levels_of(observed)):
        here = [each for each in observed if level in each.scores and each.outcome in ("finished", "stopped")]
        if len(here) >= ENOUGH:
            best_first = sorted(here, key=lambda each: (-each.scores[level], each.trial))
            return best_first[: max(1, math.ceil(len(here) * BEST_SHARE))]
    return []


def mutations(cube: Cube, parent: CubeRows, step: float, count: int, rng: np.random.Generator) -> CubeRows:
    """Return `count` rows near a trial's row.

    A number moves by a normal step with the standard deviation `step`, a share of its range, and stops at the
    ends, where the best value may lie; an option becomes any other one. One coordinate of each row moves in
    any case, if it has one that can: a step of it that would leave the range is reflected. Whole numbers are
    rounded, so they may stay as they are. What the parent does not have, but the new row does, is drawn
    evenly."""
    shape = count, len(parent)
    has = ~np.isnan(parent)
    start = np.where(has, parent, rng.random(shape))
    moves = has & (rng.random(shape) < np.where(cube.is_choice, SWITCHED, MOVED))
    forced = np.zeros(shape, bool)
    if len(varying := np.flatnonzero(has & cube.varies)):
        forced[np.arange(count), rng.choice(varying, count)] = True
    stepped = start + step * rng.normal(size=shape)
    stepped = np.where(forced, 1.0 - np.abs(1.0 - np.abs(stepped)), stepped)
    other = (start + cube.to_other_options(rng.random(shape))) % 1.0
    moved = np.where(cube.is_choice, other, np.clip(stepped, 0.0, 1.0))
    return cube.exact(np.where(moves | forced, moved, start))
