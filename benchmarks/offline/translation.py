"""A space in a peer's words, and a peer's values in ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import assert_never

from offline.peers.serving import Asked, Dimension
from offline.search_task import BareSpace, SearchTask
from spaces.domains import Choice, Domain, Float, Integer, Value, index_of, is_number
from spaces.priors import Confidence, Uniform, likeliest


def asked_of(
    task: SearchTask, space: BareSpace, factor: int, trainings: int, confidence: Confidence, seed: int
) -> Asked:
    """Return what a peer is told of a task, with the priors that the space has."""
    described = tuple(_described(space, index) for index in range(len(space.dimensions)))
    return Asked(described, task.epochs, task.grace, factor, trainings, confidence, seed)


def values_of(space: BareSpace, given: Mapping[str, float]) -> dict[str, Value]:
    """Turn a peer's values into a trial's, by path; what does not exist with the others is left out.

    Raises KeyError for a value that is missing, and ValueError for one outside its domain.
    """
    names = {dimension.name: _name(index) for index, dimension in enumerate(space.dimensions)}
    return space.define(lambda dimension, _: _value(dimension.domain, given[names[dimension.name]]))


def _name(index: int) -> str:
    return f"x{index}"


def _described(space: BareSpace, index: int) -> Dimension:
    dimension = space.dimensions[index]
    believed = dimension.prior({})
    prior = None
    if not isinstance(believed, Uniform):
        prior = _number(dimension.domain, likeliest(dimension.domain, believed))
    name, (only_if, only_with) = _name(index), _condition(space, index)
    match dimension.domain:
        case Float(low=low, high=high, log=log):
            return Dimension(name, "float", low, high, log, prior, only_if, only_with)
        case Integer(low=low, high=high, log=log):
            return Dimension(name, "integer", low, high, log, prior, only_if, only_with)
        case Choice(options=options):
            return Dimension(name, "choice", 0, len(options) - 1, False, prior, only_if, only_with)
        case _:
            assert_never(dimension.domain)


def _condition(space: BareSpace, index: int) -> tuple[str | None, tuple[int, ...]]:
    """Return the name of the choice on which a dimension depends, and the indices of its options."""
    when = space.dimensions[index].when
    if when is None:
        return None, ()
    before = [each.path for each in space.dimensions[:index]].index(when.path)
    choice = space.dimensions[before].domain
    assert isinstance(choice, Choice)
    return _name(before), tuple(index_of(choice, value) for value in when.values)


def _number(domain: Domain, value: Value) -> float:
    if isinstance(domain, Choice):
        return index_of(domain, value)
    assert is_number(value)
    return value


def _value(domain: Domain, number: float) -> Value:
    match domain:
        case Choice(options=options):
            return options[int(number)]
        case Float(low=low, high=high):
            # exp(log(low)) may lie a last digit outside.
            nearest = min(max(number, low), high)
            if not math.isclose(nearest, number, rel_tol=1e-9, abs_tol=1e-12):
                raise ValueError(f"expected {domain}, got {number!r}")
            return nearest
        case Integer():
            if number not in domain:
                raise ValueError(f"expected {domain}, got {number!r}")
            return int(number)
        case _:
            assert_never(domain)
