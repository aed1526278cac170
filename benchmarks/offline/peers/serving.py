"""A peer's search, served to the simulation that trains, in lines of JSON over standard input and output.

A peer runs in an environment of its own, so this module imports the standard library alone. The first line
is what is searched (`Asked`), and `ready` answers it, after all that packages print while they are imported.
After it each line is one question, and one line answers it:

    ["ask"]                           [number, {"x0": value, ...}]
    ["report", number, epoch, score]  whether the trial trains on
    ["diverged", number]              null
"""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TextIO

Values = Mapping[str, float]
READY = "ready"


@dataclass(frozen=True)
class Dimension:
    """What varies. An option is its index: a choice among three has the values 0, 1 and 2."""

    name: str
    kind: Literal["float", "integer", "choice"]
    low: float = 0
    high: float = 0  # of a choice the last index
    log: bool = False
    prior: float | None = None  # what is believed to be good, if anything is
    only_if: str | None = None  # the name of another choice, drawn before, which has one of `only_with`
    only_with: tuple[int, ...] = ()

    @property
    def options(self) -> list[int]:
        """The values of a choice."""
        return list(range(int(self.high) + 1))

    def exists(self, values: Values) -> bool:
        """Return whether the dimension exists with the values drawn before it."""
        return self.only_if is None or values.get(self.only_if) in self.only_with


@dataclass(frozen=True)
class Asked:
    """A search: all that a peer is told before it starts."""

    dimensions: tuple[Dimension, ...]
    epochs: int  # of a whole training
    grace: int  # epochs before a trial may be stopped
    factor: int  # the reduction factor, eta
    trainings: int  # the budget
    confidence: Literal["low", "medium", "high"]  # of the priors
    seed: int


class Peer(ABC):
    """A search; a higher score is better."""

    @abstractmethod
    def ask(self) -> tuple[int, Values]:
        """Return the number and the values of the trial that a free worker trains next.

        One that was stopped before goes on from its last epoch.
        """

    @abstractmethod
    def report(self, number: int, epoch: int, score: float) -> bool:
        """Hear the score after an epoch; return whether the trial trains on."""

    @abstractmethod
    def diverged(self, number: int) -> None:
        """Hear that a trial will have no further scores."""


class Piece(NamedTuple):
    """A piece of a training: a trial is trained until it has so many epochs."""

    number: int
    values: Values
    until: int
    handle: Any  # what the package knows it by


class Promoting(Peer):
    """A search by a package that asks for trainings of a given length, and goes on with good ones later."""

    def __init__(self) -> None:
        self._open: dict[int, Piece] = {}

    @abstractmethod
    def next_piece(self) -> Piece:
        """Return what a free worker trains next."""

    @abstractmethod
    def tell(self, handle: Any, score: float | None) -> None:
        """Hear the score at the end of a piece; None where the trial diverged."""

    def ask(self) -> tuple[int, Values]:
        piece = self.next_piece()
        self._open[piece.number] = piece
        return piece.number, piece.values

    def report(self, number: int, epoch: int, score: float) -> bool:
        if epoch < self._open[number].until:
            return True
        self.tell(self._open.pop(number).handle, score)
        return False

    def diverged(self, number: int) -> None:
        self.tell(self._open.pop(number).handle, None)


def serve(make: Callable[[Asked], Peer]) -> None:
    """Answer questions until standard input ends."""
    answers = _own_output()
    peer = make(_asked(json.loads(sys.stdin.readline())))
    print(READY, file=answers, flush=True)
    for line in sys.stdin:
        answer = _answer(peer, json.loads(line))
        print(json.dumps(answer, default=lambda scalar: scalar.item()), file=answers, flush=True)


def _answer(peer: Peer, question: list[Any]) -> object:
    match question:
        case ["ask"]:
            return peer.ask()
        case ["report", number, epoch, score]:
            return bool(peer.report(number, epoch, score))
        case ["diverged", number]:
            return peer.diverged(number)
    raise ValueError(f"expected ask, report or diverged, got {question}")


def _asked(described: dict[str, Any]) -> Asked:
    dimensions = [
        Dimension(**{**each, "only_with": tuple(each["only_with"])}) for each in described["dimensions"]
    ]
    return Asked(**{**described, "dimensions": tuple(dimensions)})


def _own_output() -> TextIO:
    """Keep standard output for answers; what a package prints there goes to standard error."""
    own = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return own
