"""The documents' rules as formulas: pure functions from Facts to a value or a distribution, with a source.

`rulings` gathers the values into the documents' own recipe, `spaces.rules` the distributions into what a
space varies. They stand beside this file: `optimizers`, `schedules`, `regularisation`, `augmentations`,
`finetuning` and `loops`.

Sources such as 003:26-40 are lines of the five documents on training that the product follows (000 to 004);
arXiv numbers are papers. Where neither gives a number, the reason says that it is ours. Between the sizes
that a source names, rules run straight in log-log: there are no cliffs where a formula will do.
"""

from __future__ import annotations

from collections.abc import Set
from typing import assert_never

from spaces.domains import Value
from spaces.facts import Facts
from spaces.rules import augmentations, loops, optimizers, regularisation, schedules
from spaces.rules.rulings import Ruling, Rulings
from trainable.recipe import Recipe
from trainable.recipe.augmentations import (
    Cutout,
    GridMask,
    HideAndSeek,
    NoCrop,
    NoMasking,
    PadCrop,
    RandomErasing,
    ResizedCrop,
)
from trainable.recipe.training import ExponentialAveraging, NoAveraging

RATIOS = frozenset({"augmentation.crop.ratio_min", "augmentation.crop.ratio_max"})
"""A pair: who pins one of them has said what the crops are to be."""


def fixed_by_rule(facts: Facts, base: Recipe, pinned: Set[str]) -> dict[str, Value]:
    """The values, pinned paths left out, that turn a base recipe into the documents' own for these facts."""
    return {path: ruling.what for path, ruling in rulings(facts, base, pinned).items()}


def rulings(facts: Facts, base: Recipe, pinned: Set[str]) -> Rulings:
    """`fixed_by_rule` with the reason and source of each value.

    A section of which any field is pinned keeps its kind: the field was written for it.
    """
    settled = pinned | {f"{path.rpartition('.')[0]}.kind" for path in pinned}
    pinned = pinned | RATIOS if pinned & RATIOS else pinned
    framed = {path: ruling for path, ruling in frame(facts).items() if path not in settled}
    recipe = base.with_values({path: ruling.what for path, ruling in framed.items()})
    return framed | {path: ruling for path, ruling in details(facts, recipe).items() if path not in pinned}


def frame(facts: Facts) -> Rulings:
    """The kinds and the batch, on which the other rules build."""
    return {
        "optimizer.kind": optimizers.optimizer(facts),
        "schedule.kind": schedules.schedule(facts),
        "augmentation.crop.kind": augmentations.crop_kind(facts),
        "augmentation.policy.kind": augmentations.policy(facts),
        "augmentation.masking.kind": augmentations.masking(facts),
        "augmentation.mixing.kind": augmentations.mixing(facts),
        "loop.batch_size": loops.batch_size(facts),
        "precision.kind": loops.precision(facts),
    }


def details(facts: Facts, recipe: Recipe) -> Rulings:
    """The values that the documents give to a recipe of these kinds and this batch."""
    return {
        **optimizers.details(facts, recipe),
        "schedule.warmup_epochs": schedules.own_warmup(facts, recipe),
        "regularisation.label_smoothing": regularisation.label_smoothing(facts),
        **_averaging_details(facts, recipe),
        **_crop_details(facts, recipe),
        "augmentation.flip_probability": augmentations.flip_probability(facts),
        **_masking_details(facts, recipe),
    }


def _averaging_details(facts: Facts, recipe: Recipe) -> Rulings:
    match recipe.regularisation.averaging:
        case NoAveraging():
            return {}
        case ExponentialAveraging():
            return {"regularisation.averaging.decay": regularisation.ema_decay(facts, recipe)}
        case _:
            assert_never(recipe.regularisation.averaging)


def _crop_details(facts: Facts, recipe: Recipe) -> Rulings:
    match recipe.augmentation.crop:
        case NoCrop():
            return {}
        case PadCrop():
            return {"augmentation.crop.fraction": augmentations.crop_fraction(facts)}
        case ResizedCrop():
            return {"augmentation.crop.scale_min": augmentations.crop_scale(facts), **_ratios(facts)}
        case _:
            assert_never(recipe.augmentation.crop)


def _ratios(facts: Facts) -> Rulings:
    """The narrowest and the widest crop, each the other's reciprocal; the recipe's default for most nets."""
    narrowest = augmentations.crop_ratio(facts)
    if narrowest is None:
        return {}
    widest = Ruling(1.0 / narrowest.what, narrowest.reason, narrowest.source)
    return {"augmentation.crop.ratio_min": narrowest, "augmentation.crop.ratio_max": widest}


def _masking_details(facts: Facts, recipe: Recipe) -> Rulings:
    match recipe.augmentation.masking:
        case RandomErasing():
            return {"augmentation.masking.probability": augmentations.erasing_probability(facts)}
        case NoMasking() | Cutout() | GridMask() | HideAndSeek():
            return {}  # the papers' own values are the recipe's defaults
        case _:
            assert_never(recipe.augmentation.masking)
