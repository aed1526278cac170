"""What one value may be: a range of numbers or a closed list, checked when built."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, assert_never

from trainable.errors import Fault, FaultyInput

Value = float | int | str | bool | None  # one scalar of a recipe
Values = Mapping[str, Value]  # by dotted path


class SpaceError(FaultyInput):
    """The faults of a space that cannot be searched."""

    subject, section = "space", "a-space"


@dataclass(frozen=True)
class Float:
    """The real numbers from `low` to `high`, both included.

    `log` draws uniformly on a logarithmic scale. Raises SpaceError unless both are finite numbers, low <
    high, and low > 0 where `log`.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        _check_range(self.low, self.high, lowest=0.0 if self.log else None, strictly=True)

    def __contains__(self, value: object) -> bool:
        return is_number(value) and self.low <= value <= self.high

    def extremes(self) -> tuple[Value, ...]:
        """Return the values that are tried on a Recipe when the space is built."""
        return (self.low, self.high)

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{', log' if self.log else ''}"


@dataclass(frozen=True)
class Integer:
    """The whole numbers from `low` to `high`, both included.

    `log` draws uniformly on a logarithmic scale. Raises SpaceError unless both are whole numbers, low < high,
    and low >= 1 where `log`.
    """

    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        unfit = [each for each in (self.low, self.high) if is_number(each) and not isinstance(each, int)]
        if unfit:
            raise SpaceError([Fault("", f"expected whole numbers, got {_listed(unfit)}")])
        _check_range(self.low, self.high, lowest=1 if self.log else None, strictly=False)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high

    def extremes(self) -> tuple[Value, ...]:
        return (self.low, self.high)

    def __str__(self) -> str:
        return f"{self.low} to {self.high}, whole{', log' if self.log else ''}"


@dataclass(frozen=True)
class Choice:
    """A closed list of `options`, which are scalars.
    Raises SpaceError if it is empty or repeats one."""

    options: tuple[Value, ...]

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise SpaceError(faults)

    def _faults(self) -> Iterator[Fault]:
        if not self.options:
            yield Fault("", "expected at least one option, got none")
        if unfit := [each for each in self.options if not isinstance(each, Value)]:
            yield Fault("", f"expected numbers, words, true, false or null as options, got {_listed(unfit)}")
            return
        if endless := [each for each in self.options if isinstance(each, float) and not math.isfinite(each)]:
            yield Fault("", f"expected finite numbers as options, got {_listed(endless)}")
        if twice := [each for at, each in enumerate(self.options) if _among(each, self.options[:at])]:
            yield Fault("", f"expected each option once, got {_listed(twice)} again")

    def __contains__(self, value: object) -> bool:
        return _among(value, self.options)

    def extremes(self) -> tuple[Value, ...]:
        return self.options

    def __str__(self) -> str:
        return f"one of {', '.join(shown(each) for each in self.options)}"


Domain = Float | Integer | Choice


def hull(domains: Sequence[Domain]) -> Domain:
    """Return the range that holds all of these ranges, which are of one kind; of options the first."""
    ends = [end for each in domains for end in each.extremes() if is_number(end)]
    match domains[0]:
        case Float(log=log):
            return Float(min(ends), max(ends), log)
        case Integer(log=log):
            return Integer(int(min(ends)), int(max(ends)), log)
        case Choice() as first:
            return first
        case other:
            assert_never(other)


def domain_tree(domain: Domain) -> dict[str, Any]:
    """Return a domain as a study and the journal write it, such as {log: [0.001, 1.0]}."""
    match domain:
        case Float(low=low, high=high, log=log):
            return {"log" if log else "uniform": [low, high]}
        case Integer(low=low, high=high, log=log):
            return {"int_log" if log else "int": [low, high]}
        case Choice(options=options):
            return {"choice": list(options)}
        case _:
            assert_never(domain)


def value_at(domain: Domain, fraction: float) -> Value:
    """Return the value at a fraction in [0, 1) of a domain's (log-)length; options have equal shares."""
    match domain:
        case Float(low=low, high=high, log=log):
            return min(max(_between(low, high, fraction, log), low), high)
        case Integer(low=low, high=high, log=log):
            return min(max(round(_between(low - 0.5, high + 0.5, fraction, log)), low), high)
        case Choice(options=options):
            return options[int(fraction * len(options))]
        case _:
            assert_never(domain)


def fraction_of(domain: Domain, value: Value) -> float:
    """Return the position of a value in its domain, as a share in [0, 1] of the domain's (log-)length.

    An option lies in the middle of its share. Raises SpaceError for a value that is not in the domain.
    """
    match domain:
        case Float(low=low, high=high) if is_number(value) and low <= value <= high:
            return _share(low, high, value, domain.log)
        case Integer(low=low, high=high) if is_number(value) and low <= value <= high:
            return _share(low - 0.5, high + 0.5, value, domain.log)
        case Choice(options=options) if value in domain:
            return (index_of(domain, value) + 0.5) / len(options)
        case _:
            raise SpaceError([Fault("", f"expected {domain}, got {shown(value)}")])


def cell_of(domain: Integer, value: int) -> tuple[float, float]:
    """Return the part of [0, 1] that `value_at` rounds to this whole number of the domain."""
    low, high = domain.low - 0.5, domain.high + 0.5
    return _share(low, high, value - 0.5, domain.log), _share(low, high, value + 0.5, domain.log)


def index_of(choice: Choice, value: Value) -> int:
    """Return the index of an option; `true` is not 1. Raises ValueError for a value that is no option."""
    same = [each == value and isinstance(each, bool) == isinstance(value, bool) for each in choice.options]
    return same.index(True)


def shown(value: object) -> str:
    """Return a scalar as YAML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        text = f"{value:g}"
        return text if text != "1" or value == 1.0 else repr(value)  # a decay of 0.9999999 is not 1
    return "null" if value is None else str(value)


def listed(words: Iterable[str]) -> str:
    """Join words into a list such as `a, b and c`."""
    *head, last = words
    return f"{', '.join(head)} and {last}" if head else last


def counted(number: float, noun: str, nouns: str = "") -> str:
    """Return a number with its noun, as in 1 trial, 2 trials, 1,259 images."""
    return f"1 {noun}" if number == 1 else f"{number:,.12g} {nouns or noun + 's'}"


def disk_size(count: float) -> str:
    """Return how much space bytes take on a disk, as in 400 kB, 1.2 MB, 34 GB."""
    size, unit = next((each for each in ((1e9, "GB"), (1e6, "MB")) if count >= each[0]), (1e3, "kB"))
    return f"{count / size:.{1 if 0 < count < 10 * size else 0}f} {unit}"


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is an int or a float; `true` is neither."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _between(low: float, high: float, fraction: float, log: bool) -> float:
    if log:
        return math.exp(_between(math.log(low), math.log(high), fraction, log=False))
    return low + (high - low) * fraction


def _share(low: float, high: float, value: float, log: bool) -> float:
    if log:
        return _share(math.log(low), math.log(high), math.log(value), log=False)
    return (value - low) / (high - low)


def _among(value: object, options: tuple[Value, ...]) -> bool:
    """Return whether a value is one of the options; `true` does not equal 1, as it does in Python."""
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in options)


def _check_range(low: float, high: float, lowest: float | None, *, strictly: bool) -> None:
    unfit = [each for each in (low, high) if not is_number(each) or not math.isfinite(each)]
    if unfit:
        raise SpaceError([Fault("", f"expected two finite numbers, got {_listed(unfit)}")])
    if not low < high:
        raise SpaceError([Fault("", f"expected low < high, got low {low}, high {high}")])
    if lowest is not None and (low <= lowest if strictly else low < lowest):
        bound = f"low > {lowest:g}" if strictly else f"low >= {lowest:g}"
        raise SpaceError([Fault("", f"a logarithmic range needs {bound}, got {low}")])


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(repr, values))
