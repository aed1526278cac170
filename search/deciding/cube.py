"""Maps the values of a space to rows of numbers and back, many at once, for models and for mutations.

A row has a column for each dimension, in drawing order: the position of a number in its (log-)range, or the
middle of an option's share of [0, 1]. A dimension that a trial does not have is NaN."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from spaces.domains import Choice, Domain, Float, Integer, SpaceError, Value, Values, value_at
from spaces.space import Dimension, Space, When

CubeRows = NDArray[np.float64]
DimensionMask = NDArray[np.bool_]

BELOW_1 = float(np.nextafter(1.0, 0.0))
# where a number stands for a model if the trial does not have it: so two trials without it are not apart
MIDDLE = 0.5
# in a mutation, the probabilities that a number moves, and that an option becomes another one
MOVED, SWITCHED = 0.5, 0.25


class Cube:
    """A space's dimensions as columns in [0, 1]."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._dimensions = space.dimensions
        self._columns = {each.name: at for at, each in enumerate(space.dimensions)}
        self._is_present = [self._presence(each) for each in space.dimensions]
        domains = [each.domain for each in space.dimensions]
        # 0 for a range
        self._options = np.array(
            [len(each.options) if isinstance(each, Choice) else 0 for each in domains], int
        )
        self.is_choice = self._options > 0
        self.varies = self._options != 1  # which dimensions have more than one value
        # the dimension of each column of `features`
        self.groups = np.repeat(np.arange(len(self)), np.maximum(self._options, 1))

    def __len__(self) -> int:
        """Return the number of dimensions."""
        return len(self._dimensions)

    def row(self, values: Values) -> CubeRows | None:
        """Return a trial's row; None where a value lies outside its domain, as the documents' may."""
        try:
            positions = self._space.encode(values)
        except SpaceError:
            return None
        row = np.full(len(self), np.nan)
        for name, position in positions.items():
            row[self._columns[name]] = position
        return row

    def values(self, row: CubeRows) -> dict[str, Value]:
        """Return the values of one of the rows of `exact`."""
        return self._space.define(
            lambda dimension, _: value_at(
                dimension.domain, min(float(row[self._columns[dimension.name]]), BELOW_1)
            )
        )

    def exact(self, rows: CubeRows) -> CubeRows:
        """Return rows that stand for values: whole numbers and options are rounded, and what does not exist
        with the values before it becomes NaN. `rows` have no NaN."""
        exact = np.clip(rows, 0.0, BELOW_1)
        for at, dimension in enumerate(self._dimensions):
            exact[:, at] = _rounded(dimension.domain, exact[:, at])
        for at, is_present in enumerate(self._is_present):
            exact[~is_present(exact), at] = np.nan
        return exact

    def to_other_options(self, fractions: CubeRows) -> CubeRows:
        """Return how far it is to another option, around the ends; each is equally likely for even
        fractions."""
        count = np.maximum(self._options, 1)
        distances: CubeRows = np.floor(1.0 + fractions * (count - 1)) / count
        return distances

    def features(self, rows: CubeRows) -> CubeRows:
        """Return rows (n, len(groups)) whose distances make sense: two options are 1 apart."""
        columns = []
        for at, count in enumerate(self._options):
            if count:
                index = np.where(np.isnan(rows[:, at]), -1, np.floor(np.nan_to_num(rows[:, at]) * count))
                columns.append((index[:, None] == np.arange(count)) / np.sqrt(2.0))
            else:
                columns.append(np.nan_to_num(rows[:, [at]], nan=MIDDLE))
        return np.concatenate(columns, axis=1)

    def _presence(self, dimension: Dimension) -> Callable[[CubeRows], DimensionMask]:
        """Return the function that says in which rows a dimension exists."""
        when = dimension.when
        if when is None:
            return lambda rows: np.ones(len(rows), bool)
        parents = [(at, each.domain) for at, each in enumerate(self._dimensions) if each.path == when.path]

        def is_present(rows: CubeRows) -> DimensionMask:
            meets, drawn = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
            for at, domain in parents:
                has = ~np.isnan(rows[:, at])
                drawn |= has
                meets[has] = _meets(when, domain, rows[has, at])
            if not drawn.all():
                meets[~drawn] = self._space.base_meets(when)
            return meets

        return is_present


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


def _meets(when: When, domain: Domain, column: CubeRows) -> DimensionMask:
    """Return which positions stand for a value that the condition names."""
    if isinstance(domain, Choice):
        named = np.array([option in when.values for option in domain.options])
        meets: DimensionMask = named[np.floor(column * len(named)).astype(int)]
        return meets
    return np.array([value_at(domain, float(each)) in when.values for each in column], bool)


def _rounded(domain: Domain, column: CubeRows) -> CubeRows:
    match domain:
        case Float():
            return column
        case Integer(low=low, high=high, log=log):
            start, end = (np.log(low - 0.5), np.log(high + 0.5)) if log else (low - 0.5, high + 0.5)
            numbers = start + (end - start) * column
            whole = np.clip(np.rint(np.exp(numbers) if log else numbers), low, high)
            exact: CubeRows = ((np.log(whole) if log else whole) - start) / (end - start)
            return exact
        case Choice(options=options):
            rounded: CubeRows = (np.floor(column * len(options)) + 0.5) / len(options)
            return rounded
