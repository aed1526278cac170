"""What a person writes over a named space: `optimizer.lr: {log: [0.01, 1.0]}`, parsed and placed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from spaces.domains import Choice, Domain, Float, Integer, SpaceError, Value, is_number
from trainable.errors import Fault, RecipeError
from trainable.recipe import Recipe

PLACE = "space.overrides"
"""Where overrides stand in a study: the head of every fault's path."""

FORBIDDEN = {
    "data": "trials that see other images, or are scored on others, cannot be compared",
    "task": "trials of different tasks cannot be compared",
    "loop.epochs": "the study's budget.epochs sets it for all, since pruning compares trials epoch by epoch",
    "loop.seed": "a seed is luck, not a choice: a search over it would report the luckiest trial",
    "model.weights": "the other ranges follow from whether the model is pretrained; write it under base",
    "provenance": "it says where a recipe comes from and changes no run",
    "version": "it says how the file is written and changes no run",
}
"""Fields, or sections of fields, that no space may vary, and why."""


@dataclass(frozen=True)
class Fixed:
    """One value for every trial, the first too."""

    value: Value


def parse(written: Any) -> Domain | Fixed:
    """The domain that `{uniform|log: [low, high]}`, `{int|int_log: [low, high]}`, `{choice: [...]}` or
    `{fixed: value}` describes. Raises SpaceError, its faults without a path."""
    if not isinstance(written, Mapping) or len(written) != 1:
        raise _expected(f"got {written!r}; a single value is written {{fixed: value}}")
    ((kind, content),) = written.items()
    match kind:
        case "uniform" | "log":
            low, high = _pair(kind, content)
            return Float(_real(low), _real(high), log=kind == "log")
        case "int" | "int_log":
            low, high = _pair(kind, content)
            return Integer(low, high, log=kind == "int_log")
        case "choice":
            if not isinstance(content, Sequence) or isinstance(content, str):
                raise SpaceError([Fault("", f"expected choice: [option, ...], got {content!r}")])
            return Choice(tuple(content))
        case "fixed":
            (value,) = Choice((content,)).options  # one option: checked to be a scalar
            return Fixed(value)
        case _:
            raise _expected(f"got {kind!r}; fields of a section are written with dots, as optimizer.lr")


def parse_all(
    overrides: Mapping[str, Any], base: Recipe, pins: Set[str]
) -> tuple[dict[str, Domain], dict[str, Value]]:
    """Overrides as domains and as fixed values, by path.

    Raises SpaceError with every fault: a field that may not vary, or that the base pins, or a bad domain.
    """
    domains: dict[str, Domain] = {}
    fixed: dict[str, Value] = {}
    faults: list[Fault] = []
    for path, written in overrides.items():
        try:
            _check_free(path, base, pins)
            match parse(written):
                case Fixed(value):
                    fixed[path] = value
                case domain:
                    domains[path] = domain
        except SpaceError as error:
            faults += placed(error.faults, path)
    if faults:
        raise SpaceError(faults)
    return domains, fixed


def placed(faults: Sequence[Fault], path: str) -> list[Fault]:
    """Faults of one override, at its place in the study."""
    return [Fault(f"{PLACE}.{path}", fault.message) for fault in faults]


@contextmanager
def in_study(overridden: Set[str]) -> Iterator[None]:
    """Within, faults in overridden paths are raised as a SpaceError at their place in the study."""
    try:
        yield
    except (SpaceError, RecipeError) as error:
        moved = [
            Fault(f"{PLACE}.{fault.path}", fault.message) if fault.path in overridden else fault
            for fault in error.faults
        ]
        raise SpaceError(moved) from None


def _check_free(path: str, base: Recipe, pins: Set[str]) -> None:
    for part, why in FORBIDDEN.items():
        if path == part or path.startswith(f"{part}."):
            raise SpaceError([Fault("", f"can never vary: {why}")])
    if path in pins:
        told = f"is pinned to {base.get(path)!r} in base and overridden here: keep one of the two"
        raise SpaceError([Fault("", told)])


def _pair(kind: str, content: Any) -> tuple[Any, Any]:
    if not isinstance(content, Sequence) or isinstance(content, str) or len(content) != 2:
        raise SpaceError([Fault("", f"expected {kind}: [low, high], got {content!r}")])
    return content[0], content[1]


def _real(value: Any) -> Any:
    """YAML's `1` for 1.0; what is no number is left to the domain's own check."""
    return float(value) if is_number(value) else value


def _expected(got: str) -> SpaceError:
    forms = "{uniform|log|int|int_log: [low, high]}, {choice: [option, ...]} or {fixed: value}"
    return SpaceError([Fault("", f"expected {forms}, {got}")])
