"""Holds the documents' rules for regularisation: smoothed labels, clipping, dropout, averaged weights.

Sources such as `003:43-59` are lines of the guides in docs/sources.md: 000 is the training tricks notes,
001 the PyTorch tuning guide, 003 the PaddleClas guide and 004 the 17 ways guide.
"""

from __future__ import annotations

import math
from decimal import Decimal

from spaces.domains import Value, Values
from spaces.facts import Facts
from spaces.priors import likeliest
from spaces.rules.augmentations import LONG_ENOUGH
from spaces.rules.rulings import (
    IMAGENET_IMAGES,
    MILLION,
    Distribution,
    Ruling,
    heuristic,
    log_log_interpolated,
    number_at,
    size_of,
    weighted_choice,
)

RESNET18 = 12 * MILLION
RESNET50 = 23 * MILLION
"""ResNet50 has 25.6 M parameters, and 23.5 M with a head of ten classes; ResNet34 has at most 21.8 M."""

USUAL_NORM = 1.0
NORMS = (0.5, USUAL_NORM, 2.0, 5.0, 10.0)

FEWEST_AVERAGED_STEPS = 100
HALF_LIVES = {0.01: 0.2, 0.02: 0.4, 0.05: 0.3, 0.1: 0.1}
"""After each of these shares of the run's steps a weight counts half in the average;
the values are their probabilities."""

# --- label smoothing ----------------------------------------------------------------------------------


def label_smoothing(facts: Facts) -> Ruling[float]:
    """Return the smoothing, which is on from ResNet50's size. Small nets gained by it in runs of 200 epochs
    and more, so the effect also depends on the budget. The documents measure size alone, and size alone
    decides here."""
    if facts.dense:
        reason = (
            "segmentations are trained with whole labels; 0.1 changed little on one set and gained on another"
        )
        return Ruling(0.0, reason, "arXiv 1706.05587, 2105.15203; measured: benchmarks/results/mask-rules.md")
    on = facts.parameters >= RESNET50
    reason = (
        "+0.5 points for ResNet50" if on else "gains from ResNet50 size only, and cost ResNet18 0.17 points"
    )
    return Ruling(0.1 if on else 0.0, f"{reason}; this is {size_of(facts)}", "003:43-59, 000:36")


@heuristic(
    "Labels are smoothed in a quarter of the trials at ResNet18 size, and in three quarters from ResNet50's.",
    """
    The documents gained 0.5 points on ResNet50 and lost 0.17 on ResNet18 (003:43-59), so nothing is tried on
    smaller nets unless you ask. Against that, PaddleClas itself smooths nets of 1.5 M parameters in runs of
    200 to 360 epochs, and the documents count the task's difficulty too (003:59): so the odds also rise with
    the length of the run and with fewer images than ImageNet's, by roots that are ours. {silent}
    """,
    silent="for smaller nets, and in a segmentation, whose published recipes have none",
)
def label_smoothings(facts: Facts, values: Values) -> Distribution | None:
    return _smoothings(facts) if facts.parameters >= RESNET18 else None


@heuristic(
    "Where you ask, a net up to ResNet18 size has smoothed labels in some trials, the more the fewer images.",
    """
    The documents saw harm there (003:51-59), on ImageNet. On few images it may help: 0.1 gained 0.8 ± 0.2
    points on 4,000 Fashion-MNIST images with a net of 20,000 parameters (a fit over 119 recipes). {silent}
    """,
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
    """
    The documents clip against explosions in deep and recurrent nets (000:7-20, 004:155). Normalised
    convolutional nets rarely explode, and transformers are trained with clipped gradients.
    """,
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
    "The documents give no number; 1 is what transformers are trained with, and the range is ours.",
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
    """
    The documents say 0.5 in general and not to mind it (001:251); against that, normalised nets do without.
    Every regulariser should be stronger for few images (003:84); the numbers are ours. {silent}
    """,
    silent=(
        "in runs of under 10 epochs, which underfit, for timm's models, some of which refuse it, and in a "
        "segmentation, whose images are many labels each"
    ),
)
def dropouts(facts: Facts, values: Values) -> Distribution | None:
    if facts.epochs < LONG_ENOUGH or values["model.kind"] == "timm":
        return None
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
    """
    An average over the last steps is steadier than the last step: torchvision's and timm's recipes have one;
    the documents do not mention it. Where the rate falls to 0 the last weights are much of an average by
    themselves: with half-lives of 2 to 5 % of the run nine pairs of runs, with and without, ended at most
    0.3 points apart (six on 10,000 Fashion-MNIST images x 9 epochs, three on 1,442 photographs x 20). But
    early scores of an average are nearer to its last score: after 2 of the 9 epochs they were 2.5 to 4.3
    points higher. Averages with longer half-lives lag behind. {silent} The shares are ours.
    """,
    silent="in runs of under 100 steps",
)
def averagings(facts: Facts, values: Values) -> Distribution | None:
    if _steps(facts, values) < FEWEST_AVERAGED_STEPS:
        return None
    domain, prior = weighted_choice({"none": 0.4, "ema": 0.6})
    reason = "averages are steadier, and their early scores say more of the last"
    return Distribution(domain, prior, reason, "ours; decay's warm-up as timm's ModelEmaV3")


@heuristic(
    "The decay per step lets a weight count half after 1, 2, 5 or 10 % of the run's steps.",
    """
    A decay of its own, such as 0.999, would forget nothing in a short run and everything in a long one. The
    shares are ours; steps are counted with the batch that the recipe settles.
    """,
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
