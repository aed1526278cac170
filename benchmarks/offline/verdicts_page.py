"""Writes the page on verdicts from the measured rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from offline.planted_rules import DIVERGING, EPOCHS, FACTOR, GRACE
from report import described
from search.deciding.scheduler import rungs
from search.record.verdicts import FALSE_SHARE


@dataclass(frozen=True)
class Null:
    """Describes searches in which no rule matters."""

    sampler: str
    trials: int
    searches: int
    tested: float
    """On average, so many rules per search had enough trials."""
    false_of_tested: float
    any_false: float
    """This share of searches gave a verdict; `interval` is its 95 % interval (Wilson's)."""
    interval: tuple[float, float]


@dataclass(frozen=True)
class Planting:
    """Describes searches in which some rules matter, by `size`, and the others of fifteen do not."""

    sampler: str
    trials: int
    size: float
    rules: int
    searches: int
    found: float
    """On average, so many rules per search matter and got their verdict."""
    false_share: float
    """On average over searches, this share of a search's verdicts is false; its standard error follows."""
    false_share_error: float
    false_of_null: float
    """This share of the tested rules that do nothing got a verdict."""


@dataclass(frozen=True)
class Power:
    """Describes searches in which one rule matters, over rules and sizes whose mean effect lies in a band."""

    trials: int
    low: int
    high: int
    cells: int
    tested: int
    """In so many searches the rule had enough trials."""
    found: float
    upside_down: float


@dataclass(frozen=True)
class Real:
    """Describes searches over recipes that were trained, with priors of known worth."""

    trials: int
    priors: str
    searches: int
    rates: int
    """Over all searches, so many rules on a rate had enough trials; their verdicts follow."""
    rates_supported: int
    rates_contradicted: int
    others: int
    others_supported: int
    others_contradicted: int


def page(
    nulls: Sequence[Null],
    plantings: Sequence[Planting],
    power: Sequence[Power],
    trained: Sequence[Real],
    where: dict[str, Any],
) -> str:
    steps = " and ".join(map(str, rungs(GRACE, FACTOR, EPOCHS)))
    return "\n".join(
        (
            "# How far verdicts can be trusted\n",
            "Simulated searches over fifteen rules (options and numbers, conditional ones, of all "
            f"confidences): {EPOCHS} epochs, rungs at {steps}, factor {FACTOR}, two workers, {DIVERGING:.0%} "
            f"of the trials diverging by chance. Promised: of a search's verdicts at most {FALSE_SHARE:.0%} "
            f"are false on average; where no rule matters, at most {FALSE_SHARE:.0%} of searches give any.\n",
            "## No rule matters: every verdict is false\n",
            "| sampler | trials | searches | rules tested | verdicts, of those | searches with any (95 %) |",
            "|-|-|-|-|-|-|",
            *map(_null_line, nulls),
            "\n## Some rules matter, the others do not\n",
            "`size` is how far each that matters moves a score, in standard deviations of luck. Two are the "
            "rates, which at size 10 decide nearly everything.\n",
            "| sampler | trials | rules that matter | size | searches | found "
            "| false, of a search's verdicts (standard error) | verdicts, of idle rules tested |",
            "|-|-|-|-|-|-|-|-|",
            *map(_planting_line, plantings),
            "\n## One rule matters: how large an effect must be\n",
            "Random draws; effects as places of 100. Searches in which too few trials follow the rule, or "
            "depart from it, do not count here.\n",
            "| trials | effect | rules x sizes | tests | found | found the wrong way round |",
            "|-|-|-|-|-|-|",
            *map(_power_line, power),
            "\n## Curves that were trained\n",
            "256 recipes of a small network on 4,000 Fashion-MNIST images, drawn from priors around the best "
            "(right) or the worst (adversarial) of 25 even draws, unpruned. Verdicts over all searches.\n",
            "| trials | priors | searches | rates tested | supported | contradicted "
            "| other rules tested | supported | contradicted |",
            "|-|-|-|-|-|-|-|-|-|",
            *(_line(*asdict(row).values()) for row in trained),
            f"\n{described(where)}",
        )
    )


def _null_line(row: Null) -> str:
    low, high = row.interval
    chance = f"{row.any_false:.1%} ({low:.1%} to {high:.1%})"
    return _line(
        row.sampler, row.trials, row.searches, f"{row.tested:.1f}", f"{row.false_of_tested:.1%}", chance
    )


def _planting_line(row: Planting) -> str:
    shares = f"{row.false_share:.1%} ({row.false_share_error:.1%})", f"{row.false_of_null:.1%}"
    matter = row.rules, f"{row.size:g}", row.searches
    return _line(row.sampler, row.trials, *matter, f"{row.found:.2f}", *shares)


def _power_line(row: Power) -> str:
    band, wrong = f"{row.low} to {row.high}", f"{row.upside_down:.1%}"
    return _line(row.trials, band, row.cells, row.tested, f"{row.found:.0%}", wrong)


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"
