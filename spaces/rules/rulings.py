"""What a heuristic gives, and the few pieces of arithmetic that they share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context
from typing import Generic, TypeVar

from spaces.domains import Choice, Domain, Float, Value, is_number
from spaces.facts import Facts
from spaces.priors import Confidence, Normal, Prior, Weights, check_prior

T = TypeVar("T", covariant=True)
Option = TypeVar("Option", bound=Value)
Word = TypeVar("Word", bound=str)

MILLION = 1_000_000
IMAGENET_IMAGES = 1_280_000
"""The training part that the documents' numbers were found on (003:88)."""
SHORT_RUN, LONG_RUN = 30_000, 3_000_000
"""Images seen in the shortest runs that were measured, and where nets of CIFAR's sizes no longer underfit."""


@dataclass(frozen=True)
class Ruling(Generic[T]):
    """One value, why it is so, and who says so.

    `unswept` is what the documents name where a sweep over rates moved the value away from that.
    """

    what: T
    reason: str
    source: str
    unswept: T | None = None


Rulings = dict[str, Ruling[Value]]
"""Values by dotted path."""


@dataclass(frozen=True)
class Distribution:
    """What a field may be, what is believed of it, why, and who says so.

    The domain and the source follow from the facts alone; the prior and its reason may also follow from the
    values drawn before. Raises SpaceError for a prior that is none of the domain's.
    """

    domain: Domain
    prior: Prior
    reason: str
    source: str

    def __post_init__(self) -> None:
        check_prior(self.domain, self.prior)


def around(centre: float, decades: float, confidence: Confidence) -> tuple[Float, Normal]:
    """Numbers around a centre, with its domain: so many decades either side."""
    factor = 10.0**decades
    return Float(rounded(centre / factor), rounded(centre * factor), log=True), Normal(centre, confidence)


def weighed(weights: Mapping[Option, float]) -> tuple[Choice, Weights]:
    """Options, each with its weight above 0."""
    return Choice(tuple(weights)), Weights(tuple(weights.values()))


def number_at(values: Mapping[str, Value], path: str) -> float:
    """The number among values that a rule builds on. Raises TypeError where it is none."""
    if not is_number(value := values[path]):
        raise TypeError(f"{path}: expected a number, got {value!r}")
    return value


def word_at(values: Mapping[str, Value], path: str, words: Sequence[Word]) -> Word:
    """The word among values that a rule builds on. Raises ValueError where it is none of them."""
    for word in words:
        if values[path] == word:
            return word
    raise ValueError(f"{path}: expected one of {', '.join(words)}, got {values[path]!r}")


def interpolated(x: float, start: tuple[float, float], end: tuple[float, float]) -> float:
    """y at x > 0 on the straight line through two points in log-log, flat beyond them."""
    (x0, y0), (x1, y1) = start, end
    return float(y0 * (y1 / y0) ** share_between(x, x0, x1))


def share_between(x: float, start: float, end: float) -> float:
    """How far x > 0 lies between two others on the logarithm: 0 up to the first, 1 from the second."""
    return min(max(math.log(x / start) / math.log(end / start), 0.0), 1.0)


def images_seen(facts: Facts) -> int:
    """How many images a run sees from first to last, each as often as it comes."""
    return facts.train_images * facts.epochs


def rounded(number: float) -> float:
    """Two significant digits: the sources give no more."""
    return float(f"{number:.2g}")


def rounded_down(number: float) -> float:
    """Two significant digits, and never more than a number above 0: for what must not be exceeded."""
    return float(Context(prec=2, rounding=ROUND_DOWN).create_decimal(repr(number)))


def size_of(facts: Facts) -> str:
    """The model's size in words."""
    return f"{facts.parameters / MILLION:.3g} M parameters"
