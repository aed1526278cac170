"""Writes a rule's answers out, for every value drawn before that they depend on.

A rule is a function. After a search has begun it must not be called again, since a later version may answer
differently. So its answers are written out when the space is built, as a tree over the values that it read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Never, TypeAlias, TypeVar, assert_never

from spaces.domains import Choice, Domain, Float, Integer, SpaceError, Value, Values, shown

T = TypeVar("T")
U = TypeVar("U")
Table: TypeAlias = "T | ByValue[T]"  # one answer for all values, or a tree of answers
Conditions = tuple[tuple[str, tuple[Value, ...]], ...]  # paths, each with the values that it may have


@dataclass(frozen=True)
class Case(Generic[T]):
    """Values that have the same answer."""

    values: tuple[Value, ...]
    then: Table[T]


@dataclass(frozen=True)
class ByValue(Generic[T]):
    """An answer for each value at `path`; a trial without that value gets the answer for `default`."""

    path: str
    default: Value
    cases: tuple[Case[T], ...]

    def case_of(self, values: Values) -> Table[T]:
        """Return the answer for these values. Raises SpaceError for a value that the table does not hold."""
        value = values.get(self.path, self.default)
        try:
            return self._by_value[_key(value)]
        except KeyError:
            raise SpaceError.at(self.path, f"no trial of this space has {shown(value)}") from None

    @cached_property
    def _by_value(self) -> dict[tuple[bool, Value], Table[T]]:
        return {_key(value): case.then for case in self.cases for value in case.values}


def answer(table: Table[T], values: Values) -> T:
    """Return the answer for these values. Raises SpaceError for a value that the table does not hold."""
    while isinstance(table, ByValue):
        table = table.case_of(values)
    return table


def answers(table: Table[T]) -> Iterator[T]:
    """Yield every answer of a table."""
    for _, each in with_conditions(table):
        yield each


def with_conditions(table: Table[T], before: Conditions = ()) -> Iterator[tuple[Conditions, T]]:
    """Yield every answer with its conditions."""
    if not isinstance(table, ByValue):
        yield before, table
        return
    for case in table.cases:
        yield from with_conditions(case.then, (*before, (table.path, case.values)))


def read_paths(table: Table[T]) -> frozenset[str]:
    """Return the paths on whose values the answers depend."""
    return frozenset(path for conditions, _ in with_conditions(table) for path, _ in conditions)


def mapped(table: Table[T], function: Callable[[T], U]) -> Table[U]:
    """Return the table with `function` applied to each answer; equal results share one case."""
    if not isinstance(table, ByValue):
        return function(table)
    return _by_value(
        table.path,
        table.default,
        ((value, mapped(case.then, function)) for case in table.cases for value in case.values),
    )


def written_out(
    ask: Callable[[Values], T], defaults: Values, domains: Mapping[str, Sequence[Domain]]
) -> Table[T]:
    """Return the answers of `ask` for `defaults`,
    and for all values in `domains` that may replace them.

    It is called again for each value of a path that it was seen to read. Raises SpaceError if the domain of
    such a path is a range of real numbers, which cannot be written out.
    """
    read = _ReadValues(defaults, domains.keys())
    found = ask(read)
    if (path := read.first) is None:
        return found
    others = {name: each for name, each in domains.items() if name != path}
    default = defaults.get(path)  # None where the settled kind of its section has no such field
    values = _values(path, domains[path], default)
    pairs = ((value, written_out(ask, {**defaults, path: value}, others)) for value in values)
    return _by_value(path, default, pairs)


class _ReadValues(Mapping[str, Value]):
    """Values, which notes the first path of `noted` that is read."""

    def __init__(self, values: Values, noted: Set[str]) -> None:
        self._values = values
        self._noted = noted
        self.first: str | None = None

    def __getitem__(self, path: str) -> Value:
        if self.first is None and path in self._noted:
            self.first = path
        return self._values[path]

    def __iter__(self) -> Never:
        raise TypeError("a rule must read values by their paths: it is recorded which ones it reads")

    def __len__(self) -> int:
        return len(self._values)


def _by_value(path: str, default: Value, found: Iterable[tuple[Value, Table[T]]]) -> Table[T]:
    """Return a tree in which values with equal answers share a case, or the answer if all are equal."""
    cases: list[tuple[list[Value], Table[T]]] = []
    for value, then in found:
        for values, same in reversed(cases):  # neighbours among numbers are mostly alike
            if same == then:
                values.append(value)
                break
        else:
            cases.append(([value], then))
    if len(cases) == 1:
        return cases[0][1]
    return ByValue(path, default, tuple(Case(tuple(values), then) for values, then in cases))


def _values(path: str, domains: Sequence[Domain], default: Value) -> Iterable[Value]:
    """Return all values of a path's domains, and the default, which may lie outside them."""
    found = {_key(each): each for domain in domains for each in _values_in(path, domain)}
    return {**found, _key(default): default}.values()


def _values_in(path: str, domain: Domain) -> Iterable[Value]:
    match domain:
        case Choice(options=options):
            return options
        case Integer(low=low, high=high):
            return range(low, high + 1)
        case Float():
            raise SpaceError.at(
                path, f"a rule depends on it, so it needs options or whole numbers, not {domain}"
            )
        case _:
            assert_never(domain)


def _key(value: Value) -> tuple[bool, Value]:
    """Return a key in which `true` does not equal 1."""
    return isinstance(value, bool), value
