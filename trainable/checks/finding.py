"""What a check finds: its level, its figures, what it means and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from trainable.data.decode import REPAIR
from trainable.errors import BrokenImages, UserError, first_line

Level = Literal["error", "warning", "note", "passed"]
CheckName = Literal[
    "class balance",
    "label shares",
    "validation size",
    "accuracy",
    "ignored pixels",
    "mask values",
    "mask position",
    "window",
    "decoding",
    "pixel values",
    "normalisation",
    "parts alike",
    "duplicates",
    "near-duplicates",
    "contradictions",
    "groups",
    "outputs",
    "resolution",
    "initial loss",
    "bias before norm",
    "unused parameters",
    "frozen parameters",
    "memory access",
    "training step",
    "first steps",
    "loader",
    "one batch",
    "learning",
    "horizontal flip",
    "vertical flip",
    "shuffled labels",
    "shuffled masks",
    "gradients",
    "GPU sharing",
]


@dataclass(frozen=True)
class Finding:
    """What one check found.

    `what` has the figures, `means` the consequence, and `do` the field or command to change; the last two are
    empty if the check passed. An `error` makes a search useless, a `warning` costs accuracy or time, and a
    `note` is worth knowing.
    """

    check: CheckName
    level: Level
    what: str
    means: str = ""
    do: str = ""

    def tree(self) -> dict[str, str]:
        return asdict(self)


def passed(check: CheckName, what: str) -> Finding:
    return Finding(check, "passed", what)


def unchecked(check: CheckName, why: str, do: str = "") -> Finding:
    """Return the finding of a check that could not be made, which is no sign of a fault."""
    return Finding(check, "note", f"not checked: {why}", "nothing is known about it", do)


def counts(findings: Sequence[Finding]) -> tuple[int, int]:
    """Return how many errors there are, and how many warnings."""
    levels = [finding.level for finding in findings]
    return levels.count("error"), levels.count("warning")


def guarded(name: CheckName, findings: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check; if it fails, yield that, so that the findings of others are not lost."""
    try:
        yield from findings()
    except Exception as error:
        yield from failed(name, error)


def failed(name: CheckName, error: Exception) -> Iterator[Finding]:
    """Yield the findings about a check that ended in an error."""
    unknown = "nothing is known about it; the other findings stand"
    match error:
        case BrokenImages():  # many checks open images, and each meets others of the broken ones
            repair = f"{REPAIR}; check --full names all"
            yield Finding("decoding", "error", str(error), "training stops at the first of them", repair)
            yield unchecked(name, "an image cannot be decoded", "see decoding")
        case UserError():
            what = f"the check cannot be made: {error}"
            yield Finding(name, "error", what, unknown, "mend what is named there, and check again")
        case _:
            what = f"the check fails: {type(error).__name__}: {first_line(error)}"
            own = "if neither the network nor a function is your own, this is a fault of tunebook: report it"
            yield Finding(name, "error", what, unknown, own)
