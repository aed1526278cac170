"""The documents' rules for the shape of the learning rate over a run.

Sources such as `000:29` are lines of the guides in docs/sources.md: 000 is the training tricks notes, 001
the PyTorch tuning guide and 003 the PaddleClas guide.
"""

from __future__ import annotations

from typing import Literal, assert_never, get_args

from spaces.domains import Float, Values
from spaces.facts import Facts
from spaces.priors import Normal
from spaces.rules.rulings import (
    LONG_RUN,
    SHORT_RUN,
    Distribution,
    Ruling,
    heuristic,
    images_seen,
    log_log_interpolated,
    number_at,
    rounded,
    rounded_down,
    weighted_choice,
    word_at,
)

ScheduleKind = Literal["constant", "cosine", "sgdr", "onecycle", "step", "poly", "exp", "cyclic"]
KINDS: tuple[ScheduleKind, ...] = get_args(ScheduleKind)
CYCLED = ("sgdr", "cyclic")  # trials can be compared only at the ends of cycles
# Kinds that neither rise by themselves nor have cycles whose ends a warm-up would move
WARMED = ("constant", "cosine", "step", "poly", "exp")

WARMUP, ATTENTION_WARMUP = 5.0, 20.0
_WARMUP = "000:29, 003:20; arXiv 1706.02677, section 2.2"


def schedule(facts: Facts) -> Ruling[str]:
    """Return the shape of the rate over the run in the documented recipe."""
    return Ruling(
        "cosine", "nothing to tune, robust, and best at the end", "003:13, 000:27; arXiv 1608.03983"
    )


@heuristic(
    "The rate follows a cosine in half of the trials of a short run and in most of a long one.",
    page="schedule.md",
)
def kinds(facts: Facts, values: Values) -> Distribution:
    cosine = log_log_interpolated(facts.epochs, (20, 0.5), (200, 0.7))
    early = log_log_interpolated(images_seen(facts), (SHORT_RUN, 0.5), (LONG_RUN, 1.0))
    others = {"onecycle": 0.2, "step": 0.1 * early, "poly": 0.1, "exp": 0.05 * early}
    rest = (1.0 - cosine) / sum(others.values())
    domain, prior = weighted_choice(
        {"cosine": cosine} | {kind: share * rest for kind, share in others.items()}
    )
    reason = f"a cosine is robust and gains with the length of the run: {facts.epochs} epochs here"
    return Distribution(domain, prior, reason, "003:13-17, 000:27, 000:55, 001:114; the shares are ours")


def warmup_epochs(facts: Facts, batch: float) -> Ruling[float]:
    """Return 5 epochs for large batches and 1 for batches up to 256, but at most a tenth of the run."""
    if facts.attention:
        epochs, reason = ATTENTION_WARMUP, "20 epochs for attention"
        source = "arXiv 2103.14030, section A2.1; 2201.03545, table 5"
    else:
        epochs, source = log_log_interpolated(batch, (256, 1.0), (1024, WARMUP)), _WARMUP
        small = f", 1 at batch {batch:g}" if batch <= 256 else ""
        reason = f"5 epochs for large batches{small}"
    longest = min(rounded(epochs), longest_warmup(facts))
    return Ruling(longest, f"{reason}; at most a tenth of the run", source)


def longest_warmup(facts: Facts) -> float:
    """Return the most epochs of warm-up that a run has: a tenth of its length."""
    return rounded_down(facts.epochs / 10)


@heuristic(
    "The rate rises from 0 in 1 epoch up to batch 256 and in 5 from batch 1,024, log-interpolated between.",
    page="schedule.md",
)
def warmups(facts: Facts, values: Values) -> Distribution:
    rule = warmup_epochs(facts, number_at(values, "loop.batch_size"))
    longest = ATTENTION_WARMUP if facts.attention else WARMUP
    most = min(2.0 * longest, longest_warmup(facts))
    source = rule.source if facts.attention else f"{rule.source}; the 1 is ours"
    return Distribution(Float(0.0, most), Normal(min(rule.what, most), "medium"), rule.reason, source)


@heuristic(
    "An exponential fall has the factor per epoch that leaves a hundredth of the rate at the end.",
    page="schedule.md",
)
def falls(facts: Facts, values: Values) -> Distribution:
    low, centre, high = (left ** (1.0 / facts.epochs) for left in (1e-4, 1e-2, 1 / 3))
    reason = f"falls to a hundredth of the rate within {facts.epochs} epochs"
    return Distribution(
        Float(low, high, log=True), Normal(centre, "medium"), reason, "001:114, 003:13; the number is ours"
    )


def own_warmup(facts: Facts, values: Values) -> Ruling[float]:
    """Return the warm-up that the documents give to a recipe's kind of schedule."""
    match kind := word_at(values, "schedule.kind", KINDS):
        case "constant" | "cosine" | "step" | "poly" | "exp":
            return warmup_epochs(facts, number_at(values, "loop.batch_size"))
        case "onecycle":
            return Ruling(0.0, "the cycle itself rises from a low rate", "001:136; arXiv 1708.07120")
        case "cyclic":
            return Ruling(0.0, "each cycle itself rises from a low rate", "001:136; arXiv 1506.01186")
        case "sgdr":
            reason = "the paper has none, and it would move the ends of the cycles, where trials are compared"
            return Ruling(0.0, reason, "001:130-189; arXiv 1608.03983")
        case _:
            assert_never(kind)
