"""The documents' rules for regularisation: smoothed labels, clipping, dropout, averaged weights.

Sources such as `003:43-59` are lines of the guides in docs/sources.md: 000 is the training tricks notes,
001 the PyTorch tuning guide, 003 the PaddleClas guide and 004 the 17 ways guide.
"""

from __future__ import annotations

import math
from decimal import Decimal

from spaces.domains import Value, Values
from spaces.facts import Facts
from spaces.priors import likeliest
from spaces.rules.rulings import (
    IMAGENET_IMAGES,
    MILLION,
    Distribution,
    Ruling,
    Threshold,
    epochs_for_augmentation,
    heuristic,
    log_log_interpolated,
    number_at,
    short_of,
    size_of,
    weighted_choice,
)

RESNET18 = 12 * MILLION
# ResNet50 has 25.6 M parameters, and 23.5 M with a head of ten classes; ResNet34 has at most 21.8 M
RESNET50 = 23 * MILLION

USUAL_NORM = 1.0
NORMS = (0.5, USUAL_NORM, 2.0, 5.0, 10.0)

FEWEST_AVERAGED_STEPS = 100
# Shares of the run's steps after which a weight counts half in the average, and their probabilities
HALF_LIVES = {0.01: 0.2, 0.02: 0.4, 0.05: 0.3, 0.1: 0.1}

# --- label smoothing ----------------------------------------------------------------------------------


def label_smoothing(facts: Facts) -> Ruling[float]:
    """Return the smoothing, which is on from ResNet50's size. Small nets gained by it in runs of 200 epochs
    and more, so the effect also depends on the budget. The documents measure size alone, and size alone
    decides here."""
    on = facts.parameters >= RESNET50
    reason = (
        "+0.5 points for ResNet50" if on else "gains from ResNet50 size only, and cost ResNet18 0.17 points"
    )
    return Ruling(0.1 if on else 0.0, f"{reason}; this is {size_of(facts)}", "003:43-59, 000:36")


@heuristic(
    "Labels are smoothed in a quarter of the trials at ResNet18 size, and in three quarters from ResNet50's.",
    page="regularisation.md",
    silent="for smaller nets, and in a segmentation, whose published recipes have none",
)
def label_smoothings(facts: Facts, values: Values) -> Distribution | Threshold | None:
    millions = Threshold("million parameters", facts.parameters / MILLION, RESNET18 / MILLION)
    return _smoothings(facts) if millions.is_met else millions


@heuristic(
    "Where you ask, a net up to ResNet18 size has smoothed labels in some trials, the more the fewer images.",
    page="regularisation.md",
    silent="for larger nets, and in a segmentation",
)
def label_smoothings_of_small_nets(facts: Facts, values: Values) -> Distribution | None:
    return _smoothings(facts) if facts.parameters < RESNET18 else None


def _smoothings(facts: Facts) -> Distribution:
    share = log_log_interpolated(facts.parameters, (RESNET18, 0.25), (25 * MILLION, 0.75))
    length = log_log_interpolated(facts.epochs, (30, 0.5), (480, 2.0))
    scarcity = log_log_interpolated(facts.train_images, (5_000, 3.0), (IMAGENET_IMAGES, 1.0))
    odds = share / (1.0 - share) * length * scarcity
    on = odds / (1.0 + odds)
    domain, prior = weighted_choice({0.0: 1.0 - on, 0.05: 0.25 * on, 0.1: 0.5 * on, 0.2: 0.25 * on})
    reason = (
        f"gains from ResNet50 size, in long runs and on few images; this is {size_of(facts)}, "
        f"{facts.epochs} epochs, {facts.train_images:,} images"
    )
    return Distribution(domain, prior, reason, "003:43-59; arXiv 1512.00567, section 7; the odds are ours")


# --- clipping -----------------------------------------------------------------------------------------


@heuristic(
    "The gradient is not clipped in 7 of 10 trials of a convolutional net, and in 2 of 10 with attention.",
    page="regularisation.md",
)
def clippings(facts: Facts, values: Values) -> Distribution:
    off = 0.2 if facts.attention else 0.7
    domain, prior = weighted_choice({"none": off, "norm": 1.0 - off})
    reason = "transformers clip" if facts.attention else "normalised nets seldom need it"
    return Distribution(
        domain, prior, reason, "000:7-20, 004:155; arXiv 2010.11929, table 3; the shares are ours"
    )


@heuristic(
    "With attention, 3 of 4 trials clip at norm 1; without, any norm from 0.5 to 10 is tried.",
    page="regularisation.md",
)
def clip_norms(facts: Facts, values: Values) -> Distribution:
    usual = 0.75 if facts.attention else 0.2
    rest = (1.0 - usual) / (len(NORMS) - 1)
    domain, prior = weighted_choice({norm: usual if norm == USUAL_NORM else rest for norm in NORMS})
    reason = "transformers clip at 1" if facts.attention else "no norm is known to be better than another"
    return Distribution(domain, prior, reason, "arXiv 2010.11929, table 3; the range and the shares are ours")


# --- dropout ------------------------------------------------------------------------------------------


@heuristic(
    "Dropout before the head is around 0.35 for a thousand images, and falls to 0.05 for a hundred thousand.",
    page="regularisation.md",
    silent=(
        "in runs of under 10 epochs, which underfit, for timm's models, some of which refuse it, and in a "
        "segmentation, whose images are many labels each"
    ),
)
def dropouts(facts: Facts, values: Values) -> Distribution | Threshold | None:
    if values["model.kind"] == "timm":
        return None
    if (short := short_of(epochs_for_augmentation(facts))) is not None:
        return short
    centre = log_log_interpolated(facts.train_images, (1_000, 0.35), (100_000, 0.05))
    spread = 0.2
    rates: tuple[tuple[Value, float], ...] = ((None, 0.0), (0.1, 0.1), (0.2, 0.2), (0.35, 0.35), (0.5, 0.5))
    domain, prior = weighted_choice(
        {each: math.exp(-0.5 * ((rate - centre) / spread) ** 2) for each, rate in rates}
    )
    reason = f"about {centre:.2g} for {facts.train_images:,} images: the fewer images, the more dropout"
    return Distribution(domain, prior, reason, "001:251, 003:84; JMLR 15:1929; the numbers are ours")


# --- averaged weights ---------------------------------------------------------------------------------


@heuristic(
    "Weights are averaged in 6 of 10 trials.",
    page="regularisation.md",
    silent="in runs of under 100 steps",
)
def averagings(facts: Facts, values: Values) -> Distribution | Threshold | None:
    steps = Threshold("steps of a run", _steps(facts, values), FEWEST_AVERAGED_STEPS)
    if not steps.is_met:
        return steps
    domain, prior = weighted_choice({"none": 0.4, "ema": 0.6})
    reason = "averages are steadier, and their early scores say more of the last"
    return Distribution(domain, prior, reason, "ours; decay's warm-up as timm's ModelEmaV3")


@heuristic(
    "The decay per step lets a weight count half after 1, 2, 5 or 10 % of the run's steps.",
    page="regularisation.md",
)
def ema_decays(facts: Facts, values: Values) -> Distribution:
    steps = _steps(facts, values)
    decays: dict[Value, float] = {}
    for share, weight in HALF_LIVES.items():
        decay = _decay(max(1.0, share * steps))
        decays[decay] = decays.get(decay, 0.0) + weight
    domain, prior = weighted_choice(decays)
    reason = f"half-lives of 1, 2, 5 and 10 % of {steps:,} steps"
    return Distribution(domain, prior, reason, "ours; torchvision's references scale it with the run too")


def ema_decay(facts: Facts, values: Values) -> Ruling[Value]:
    """Return the likeliest decay, for a recipe that averages its weights: the documents have none."""
    found = ema_decays(facts, values)
    return Ruling(likeliest(found.domain, found.prior), f"the likeliest of {found.reason}", found.source)


def _decay(half_life: float) -> float:
    """Return the decay for a half-life in steps.
    What a step forgets has four digits, so that no run's decay is 1."""
    forgotten = -math.expm1(-math.log(2.0) / half_life)
    return float(1 - Decimal(f"{forgotten:.4g}"))


def _steps(facts: Facts, values: Values) -> int:
    """Return how often the weights are updated: the last short batch of an epoch is dropped."""
    return facts.epochs * max(1, facts.train_images // int(number_at(values, "loop.batch_size")))
