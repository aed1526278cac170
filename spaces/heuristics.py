"""The documents' rules as formulas: each a pure function from Facts to a value or a range, with its source.

`rulings` gathers the values into the documents' own recipe, `spaces.catalog` the ranges into a space.

Sources such as 003:26-40 are lines of the five documents on training that the product follows (000 to 004);
arXiv numbers are papers. Where neither gives a number, the reason says that it is ours. Between the sizes
that a source names, rules run straight in log-log: there are no cliffs where a formula will do. Those on
augmentation stand in `spaces.augmentations`, those on the optimizer in `spaces.optimizers`.
"""

from __future__ import annotations

import math
from collections.abc import Set
from typing import assert_never

from spaces import augmentations, optimizers
from spaces.domains import Choice, Float, Value
from spaces.facts import Facts
from spaces.rulings import MILLION, Ruling, Rulings, interpolated, rounded, size_of
from trainable.recipe import Recipe
from trainable.specs.augmentations import (
    Cutout,
    GridMask,
    HideAndSeek,
    NoCrop,
    NoMasking,
    PadCrop,
    RandomErasing,
    ResizedCrop,
)
from trainable.specs.schedules import SGDR, Constant, Cosine, Cyclic, Exponential, OneCycle, Poly, Step

RESNET18 = 12 * MILLION
RESNET50 = 23 * MILLION
"""ResNet50 has 25.6 M parameters, 23.5 M with a head of ten classes; ResNet34 has at most 21.8 M."""

# --- batch and schedule -------------------------------------------------------------------------------

STEPS_AN_EPOCH = 20
STEPS_A_RUN = 500
CPU_BATCH, GPU_BATCH, SMALLEST_BATCH = 128, 256, 16
CYCLED = ("sgdr", "cyclic")
"""Schedules in which trials can be compared at the ends of cycles only."""
WARMED = ("constant", "cosine", "step", "poly", "exp")
"""Schedules that neither rise by themselves nor have cycles whose ends a warm-up would move."""


def batch_size(facts: Facts) -> Ruling[int]:
    """The largest power of two under three caps; never searched, since the rate is tuned apart from it.

    The documents warn that large batches generalise worse (004:49). Measured on 4,000 Fashion-MNIST images
    over 9 epochs, mean accuracy of draws around these rules: batch 64 81.3 % (n=9), 128 80.5 % (n=15), 256
    78.0 % (n=8): a run needs some 500 steps. A CPU is no faster above 128; 256 is the documents' batch.
    """
    hardware = GPU_BATCH if facts.gpus else CPU_BATCH
    epoch, run = facts.train_images // STEPS_AN_EPOCH, facts.train_images * facts.epochs // STEPS_A_RUN
    cap = min(hardware, max(SMALLEST_BATCH, min(epoch, run)), facts.train_images)
    where = "a GPU" if facts.gpus else "a CPU"
    reason = (
        f"a power of two, at most {hardware} on {where}, for {STEPS_AN_EPOCH} steps an epoch and "
        f"{STEPS_A_RUN} a run of {facts.train_images:,} images x {facts.epochs} epochs; at least "
        f"{SMALLEST_BATCH}"
    )
    return Ruling(2 ** int(math.log2(cap)), reason, "000:57, 003:23, 004:43-49; the counts of steps are ours")


def schedule(facts: Facts) -> Ruling[str]:
    """The rate's shape over the run, for every trial."""
    return Ruling(
        "cosine", "nothing to tune, robust, and best at the end", "003:13, 000:27; arXiv 1608.03983"
    )


def warmup_epochs(facts: Facts, batch: int) -> Ruling[float]:
    """5 epochs for large batches and 1 up to 256, but at most a tenth of the run."""
    epochs = interpolated(batch, (256, 1.0), (1024, 5.0))
    reason = (
        f"5 epochs for large batches, 1 at batch {batch}" if batch <= 256 else "5 epochs for large batches"
    )
    return Ruling(rounded(min(epochs, facts.epochs / 10)), f"{reason}; at most a tenth of the run", _WARMUP)


def warmups(facts: Facts, batch: int) -> Ruling[Float]:
    """Warm-ups to try: none to twice the rule's, but at most a tenth of the run."""
    most = min(interpolated(batch, (256, 2.0), (1024, 10.0)), facts.epochs / 10)
    reason = f"up to twice the rule's epochs for batch {batch}, and a tenth of {facts.epochs} epochs"
    return Ruling(Float(0.0, rounded(most)), reason, _WARMUP)


_WARMUP = "000:29, 003:20; arXiv 1706.02677, section 2.2"

# --- regularisation -----------------------------------------------------------------------------------


def label_smoothing(facts: Facts) -> Ruling[float]:
    """On from ResNet50 size. Small nets were smoothed with gain in runs of 200 epochs and more, so that
    the effect is also one of budget: the documents measure size alone, and size alone decides here."""
    on = facts.parameters >= RESNET50
    reason = (
        "+0.5 points for ResNet50" if on else "gains from ResNet50 size only, and cost ResNet18 0.17 points"
    )
    return Ruling(0.1 if on else 0.0, f"{reason}; this is {size_of(facts)}", "003:43-59, 000:36")


def label_smoothings(facts: Facts) -> Ruling[Choice] | None:
    """None up to ResNet18 size, where the documents saw harm."""
    if facts.parameters < RESNET18:
        return None
    reason = f"gains from ResNet50 size, harms at ResNet18 size; this is {size_of(facts)}"
    return Ruling(Choice((0.0, 0.1)), reason, "003:43-59; arXiv 1512.00567, section 7")


# --- all values, by path ------------------------------------------------------------------------------


def fixed_by_rule(facts: Facts, base: Recipe, pinned: Set[str]) -> dict[str, Value]:
    """The values, pinned paths left out, that turn a base recipe into the documents' own for these facts."""
    return {path: ruling.what for path, ruling in rulings(facts, base, pinned).items()}


def rulings(facts: Facts, base: Recipe, pinned: Set[str]) -> Rulings:
    """`fixed_by_rule` with the reason and source of each value.

    A section of which any field is pinned keeps its kind: the field was written for it.
    """
    settled = pinned | {f"{path.rpartition('.')[0]}.kind" for path in pinned}
    framed = {path: ruling for path, ruling in frame(facts).items() if path not in settled}
    recipe = base.with_values({path: ruling.what for path, ruling in framed.items()})
    return framed | {path: ruling for path, ruling in details(facts, recipe).items() if path not in pinned}


def frame(facts: Facts) -> Rulings:
    """The kinds and the batch, on which the other rules build."""
    return {
        "optimizer.kind": optimizers.optimizer(facts),
        "schedule.kind": schedule(facts),
        "augmentation.crop.kind": augmentations.crop_kind(facts),
        "augmentation.policy.kind": augmentations.policy(facts),
        "augmentation.masking.kind": augmentations.masking(facts),
        "augmentation.mixing.kind": augmentations.mixing(facts),
        "loop.batch_size": batch_size(facts),
    }


def details(facts: Facts, recipe: Recipe) -> Rulings:
    """The values that the documents give to a recipe of these kinds and this batch."""
    return {
        **optimizers.details(facts, recipe),
        "schedule.warmup_epochs": _warmup(facts, recipe),
        "regularisation.label_smoothing": label_smoothing(facts),
        **_crop_details(facts, recipe),
        "augmentation.flip_probability": augmentations.flip_probability(facts),
        **_masking_details(facts, recipe),
    }


def _warmup(facts: Facts, recipe: Recipe) -> Ruling[float]:
    match recipe.schedule:
        case Constant() | Cosine() | Step() | Poly() | Exponential():
            return warmup_epochs(facts, recipe.loop.batch_size)
        case OneCycle():
            return Ruling(0.0, "the cycle itself rises from a low rate", "001:136; arXiv 1708.07120")
        case Cyclic():
            return Ruling(0.0, "each cycle itself rises from a low rate", "001:136; arXiv 1506.01186")
        case SGDR():
            reason = "the paper has none, and it would move the ends of the cycles, where trials are compared"
            return Ruling(0.0, reason, "001:130-189; arXiv 1608.03983")
        case _:
            assert_never(recipe.schedule)


def _crop_details(facts: Facts, recipe: Recipe) -> Rulings:
    match recipe.augmentation.crop:
        case NoCrop():
            return {}
        case PadCrop():
            return {"augmentation.crop.fraction": augmentations.crop_fraction(facts)}
        case ResizedCrop():
            return {"augmentation.crop.scale_min": augmentations.crop_scale(facts)}
        case _:
            assert_never(recipe.augmentation.crop)


def _masking_details(facts: Facts, recipe: Recipe) -> Rulings:
    match recipe.augmentation.masking:
        case RandomErasing():
            return {"augmentation.masking.probability": augmentations.erasing_probability(facts)}
        case NoMasking() | Cutout() | GridMask() | HideAndSeek():
            return {}  # the papers' own values are the recipe's defaults
        case _:
            assert_never(recipe.augmentation.masking)
