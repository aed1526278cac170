"""What a heuristic returns, and the few pieces of arithmetic that heuristics share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context
from typing import Generic, ParamSpec, TypeVar

from spaces.domains import Choice, Domain, Float, Value, is_number
from spaces.facts import Facts
from spaces.priors import Confidence, Normal, Prior, Weights, check_prior

T = TypeVar("T", covariant=True)
Scalar = TypeVar("Scalar", bound=Value)
Word = TypeVar("Word", bound=str)
P = ParamSpec("P")
Found = TypeVar("Found", bound="Distribution | Threshold | None", covariant=True)

PAGE = "docs/heuristics.md"  # of the repository: a section for each field that has a rule
PAGES = "docs/rules"  # what was measured and published
MILLION = 1_000_000
IMAGENET_IMAGES = 1_280_000  # on so many images the documents' numbers were found (PaddleClas guide, 003:88)
# Images that the shortest measured runs saw, and with which nets of CIFAR's sizes no longer underfit
SHORT_RUN, LONG_RUN = 30_000, 3_000_000
# Epochs: from the first on augmentation is tried, from the second as often as the documents' gains ask
LONG_ENOUGH, LONG = 10, 100
NEAR = 0.25  # a rule just misses whose fact is below its threshold by this share of it at most; ours


def anchor(heading: str) -> str:
    """Return the anchor of a section on a page, as GitHub makes it of the heading."""
    return re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")


@dataclass(frozen=True)
class Ruling(Generic[T]):
    """One value, with the reason and the source."""

    what: T
    reason: str
    source: str
    unswept: T | None = None  # what the documents name, where a sweep over rates moved the value


Rulings = dict[str, Ruling[Value]]  # by dotted path


@dataclass(frozen=True)
class Distribution:
    """The domain of a field and its prior, with the reason and the source.

    The domain and the source follow from the facts alone; the prior and its reason may also follow from the
    values drawn before. Raises SpaceError for a prior that does not fit the domain.
    """

    domain: Domain
    prior: Prior
    reason: str
    source: str

    def __post_init__(self) -> None:
        check_prior(self.domain, self.prior)


@dataclass(frozen=True)
class Threshold:
    """A fact, above 0, and from where on a rule opens its field: what a rule answers in the place of a range
    where the fact is too small."""

    fact: str
    value: float
    least: float

    @property
    def is_met(self) -> bool:
        return self.value >= self.least

    @property
    def is_near(self) -> bool:
        return self.value >= (1.0 - NEAR) * self.least

    def __str__(self) -> str:
        return f"{self.fact}: {self.value:.3g} < {self.least:.3g}"


def short_of(*thresholds: Threshold) -> Threshold | None:
    """Return the threshold that is farthest from being met; None where all are met."""
    unmet = [each for each in thresholds if not each.is_met]
    return min(unmet, key=lambda each: each.value / each.least, default=None)


@dataclass(frozen=True)
class RuleWords:
    """What a rule says of itself, in messages and on the page of heuristics."""

    summary: str  # in one sentence, what the rule gives
    page: str | None = None  # of PAGES, with a section for the rule's field: what the rule rests on
    silent: str | None = None  # the facts for which it gives nothing, such as `in runs of under 10 epochs`

    @property
    def text(self) -> str:
        """The summary, and when the rule gives nothing."""
        return (
            self.summary if self.silent is None else f"{self.summary} The rule gives no range {self.silent}."
        )


@dataclass(frozen=True)
class Heuristic(Generic[P, Found]):
    """A function from facts to a distribution, or to None where it is silent, with its words; where that is
    as a fact is too small, to the threshold."""

    function: Callable[P, Found]
    words: RuleWords

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Found:
        return self.function(*args, **kwargs)


def heuristic(
    summary: str, *, page: str | None = None, silent: str | None = None
) -> Callable[[Callable[P, Found]], Heuristic[P, Found]]:
    """Decorate a function with what it says of itself; experiments stand on its page."""
    return lambda function: Heuristic(function, RuleWords(summary, page, silent))


def around(centre: float, decades: float, confidence: Confidence) -> tuple[Float, Normal]:
    """Return a domain of so many decades above and below a centre, and the prior around that centre."""
    factor = 10.0**decades
    return Float(rounded(centre / factor), rounded(centre * factor), log=True), Normal(centre, confidence)


def weighted_choice(weights: Mapping[Scalar, float]) -> tuple[Choice, Weights]:
    """Return the options, and their weights, which are above 0."""
    return Choice(tuple(weights)), Weights(tuple(weights.values()))


def number_at(values: Mapping[str, Value], path: str) -> float:
    """Return the number among the values that a rule depends on. Raises TypeError if it is none."""
    if not is_number(value := values[path]):
        raise TypeError(f"{path}: expected a number, got {value!r}")
    return value


def word_at(values: Mapping[str, Value], path: str, words: Sequence[Word]) -> Word:
    """Return the word among the values that a rule depends on.
    Raises ValueError if it is none of `words`."""
    for word in words:
        if values[path] == word:
            return word
    raise ValueError(f"{path}: expected one of {', '.join(words)}, got {values[path]!r}")


def log_log_interpolated(x: float, start: tuple[float, float], end: tuple[float, float]) -> float:
    """Return y at x > 0 on the straight line through two points in log-log; y is constant beyond them."""
    (x0, y0), (x1, y1) = start, end
    return float(y0 * (y1 / y0) ** share_between(x, x0, x1))


def share_between(x: float, start: float, end: float) -> float:
    """Return how far x > 0 lies between two numbers on a logarithmic scale:
    0 up to the first, 1 from the second."""
    return min(max(math.log(x / start) / math.log(end / start), 0.0), 1.0)


def images_seen(facts: Facts) -> int:
    """Return how many images a run sees in all; an image counts each time that it is seen."""
    return facts.train_images * facts.epochs


def rounded(number: float) -> float:
    """Round to two significant digits: the sources give no more."""
    return float(f"{number:.2g}")


def rounded_down(number: float) -> float:
    """Round a number above 0 down to two significant digits, for limits that must not be exceeded."""
    return float(Context(prec=2, rounding=ROUND_DOWN).create_decimal(repr(number)))


def long_enough(facts: Facts) -> bool:
    """Return whether a run has enough epochs for augmentation.

    The gains of 003:70-82 took 300 epochs; a net that does not fit the plain images underfits (003:84).
    """
    return facts.epochs >= LONG_ENOUGH


def epochs_for_augmentation(facts: Facts) -> Threshold:
    """Return the epochs, and from how many on augmentation is tried."""
    return Threshold("epochs", facts.epochs, LONG_ENOUGH)


def size_of(facts: Facts) -> str:
    """Describe the model's size in words."""
    return f"{shown_parameters(facts)} parameters"


def shown_parameters(facts: Facts) -> str:
    """Return the number of parameters, in millions from one million on."""
    count = facts.parameters
    return f"{count / MILLION:.3g} M" if count >= MILLION else f"{count:,}"
