"""Proposes which fields of a recipe to change after a run, by what was wrong with it; it applies nothing.

Sources such as `003:84` cite lines of the PaddleClas guide (003), the PyTorch tuning guide (001), the
training tricks notes (000) and the 17 ways guide (004): docs/sources.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Literal, NamedTuple, assert_never

from trainable.curves.task_curves import Remedy, TaskCurves, change, rounded
from trainable.recipe import Recipe, augmentations, optimizers, schedules
from trainable.recipe.base import with_guide_names
from trainable.recipe.models import ResNetSmall, UNetSmall
from trainable.recipe.training import AdaptiveClipping, NoClipping, NormClipping

RunVerdict = Literal[
    "diverged", "unstable", "overfit", "still improving", "underfit", "at its ceiling", "healthy"
]

# A run that ends above this share of its peak rate, a step schedule's first drop (1512.03385, 3.4), never
# settled
RATE_STILL_HIGH = 0.1


def remedies(
    verdict: RunVerdict,
    recipe: Recipe,
    task: TaskCurves,
    *,
    rate_left: float = 0.0,
    rate_may_rise: bool = True,
    small_missed: bool = False,
) -> tuple[Remedy, ...]:
    """Return what to change, the likeliest first; only fields that this recipe has and that can still move.

    `rate_left` is the learning rate at the end over its peak; `rate_may_rise` is false if the curves show a
    rate that is too high already; `small_missed` is true if small classes are known less than large ones.
    Each remedy is valid alone, and all together.
    """
    match verdict:
        case "diverged":
            found = _calmer(recipe, 10.0, rate_left=0.0)
        case "unstable":
            found = _calmer(recipe, 3.0, rate_left)
        case "overfit":
            found = _more_regularisation(recipe, task)
        case "still improving":
            found = _longer(recipe)
        case "underfit":
            better = task.better_fit(recipe, small_missed=small_missed)
            found = chain(_longer(recipe), better, _less_regularisation(recipe, rate_may_rise))
        case "at its ceiling" | "healthy":
            found = iter(())
        case _:
            assert_never(verdict)
    proposed = tuple(found)
    sources = with_guide_names(each.source for each in proposed)
    return tuple(replace(each, source=source) for each, source in zip(proposed, sources, strict=True))


def _calmer(recipe: Recipe, factor: float, rate_left: float) -> Iterator[Remedy]:
    for name in _rates(recipe.optimizer):
        now = recipe.get(f"optimizer.{name}")
        why = f"a rate {factor:g} times lower; `tunebook lr-find` gives the band"
        yield Remedy(f"optimizer.{name}", now, rounded(now / factor), why, "001:22-76; arXiv 1803.09820, 4.1")
    yield from _warmer(recipe)
    if rate_left > RATE_STILL_HIGH:
        yield from _to_rest(recipe)
    yield from _bounded(recipe)
    if recipe.precision.kind == "fp16":
        why = "bf16 has fp32's range: no gradient overflows"
        yield change(recipe, "precision.kind", "bf16", why, "000:5; arXiv 1905.12322")
    if recipe.evaluation.norm_batches == 0 and not recipe.model.freeze_norm:
        why = "BatchNorm's running statistics lag behind fast weights, and validation is scored with them"
        yield change(recipe, "evaluation.norm_batches", 20, why, "arXiv 2105.07576, section 3")


def _warmer(recipe: Recipe) -> Iterator[Remedy]:
    match recipe.schedule:
        case schedules.OneCycle() | schedules.Cyclic():
            return  # these rise by themselves
        case schedule:
            longest = min(5.0, recipe.loop.epochs / 10)
            if longest > schedule.warmup_epochs:
                why = "a high rate does most harm in the first steps, from random weights"
                source = "000:29, 003:20; arXiv 1706.02677, 2.2"
                yield change(recipe, "schedule.warmup_epochs", longest, why, source)


def _bounded(recipe: Recipe) -> Iterator[Remedy]:
    why, source = "one unusual batch cannot move the weights far", "000:7, 004:155; arXiv 1211.5063, 3.2"
    match recipe.regularisation.clipping:
        case NoClipping():
            yield change(recipe, "regularisation.clipping.kind", "norm", why, source)
        case NormClipping(max_norm=norm) if norm > 1.0:
            yield change(recipe, "regularisation.clipping.max_norm", 1.0, why, source)
        case NormClipping() | AdaptiveClipping():
            return
        case _:
            assert_never(recipe.regularisation.clipping)


def _to_rest(recipe: Recipe) -> Iterator[Remedy]:
    why = "the rate ends high, so the last weights are still random; let it fall to 0"
    match recipe.schedule:
        case schedules.Cosine(final_factor=final) if final > 0.0:
            yield change(recipe, "schedule.final_factor", 0.0, why, "003:13; arXiv 1608.03983")
        case schedules.Constant() | schedules.Step() | schedules.Exponential() | schedules.Cyclic():
            yield change(recipe, "schedule.kind", "cosine", why, "003:13; arXiv 1608.03983")
        case schedules.Cosine() | schedules.Poly() | schedules.OneCycle() | schedules.SGDR():
            return
        case _:
            assert_never(recipe.schedule)


def _more_regularisation(recipe: Recipe, task: TaskCurves) -> Iterator[Remedy]:
    if recipe.data.train_limit is not None:
        yield change(recipe, "data.train_limit", None, "more images help most", "arXiv 1707.02968")
    for name, decay in _decays(recipe.optimizer):
        if (now := recipe.get(f"optimizer.{name}")) < decay.highest:
            to = rounded(min(decay.highest, 3.0 * now)) if now else decay.usual
            why = "smaller weights follow single images less"
            yield Remedy(f"optimizer.{name}", now, to, why, f"003:84, 003:26-40; {decay.source}")
    yield from task.harder_images(recipe)
    if (recipe.model.dropout or 0.0) < 0.2:
        yield change(
            recipe, "model.dropout", 0.2, "the network cannot rely on one feature", "001:251; JMLR 15:1929"
        )


def _longer(recipe: Recipe) -> Iterator[Remedy]:
    why = "train again for twice the epochs; the schedule is stretched with them"
    yield change(recipe, "loop.epochs", 2 * recipe.loop.epochs, why, "003:17; arXiv 1705.08741")


def _less_regularisation(recipe: Recipe, rate_may_rise: bool) -> Iterator[Remedy]:
    for name in _rates(recipe.optimizer) if rate_may_rise else ():
        now = recipe.get(f"optimizer.{name}")
        why = "a higher rate, if this one was too low; `tunebook lr-find` gives the band"
        yield Remedy(f"optimizer.{name}", now, rounded(3.0 * now), why, "001:22-76; arXiv 1803.09820, 4.1")
    if recipe.regularisation.label_smoothing > 0.0:
        yield change(recipe, "regularisation.label_smoothing", 0.0, "hard targets", "003:84, 003:43-59")
    yield from _less_augmentation(recipe)
    for name, decay in _decays(recipe.optimizer):
        if (now := recipe.get(f"optimizer.{name}")) > decay.lowest:
            to = rounded(max(decay.lowest, now / 3.0))
            why = "weights that are held smaller learn less"
            yield Remedy(f"optimizer.{name}", now, to, why, f"003:84, 003:26-40; {decay.source}")
    for name in ("dropout", "stochastic_depth"):
        if recipe.get(f"model.{name}"):
            yield change(recipe, f"model.{name}", 0.0, "the whole network learns in every step", "001:251")
    if 2 * recipe.model.freeze_epochs >= recipe.loop.epochs:
        why = "the whole net is trained for less than half of the run"
        yield change(recipe, "model.freeze_epochs", recipe.loop.epochs // 10, why, "001:100")
    if isinstance(recipe.model, ResNetSmall | UNetSmall) and recipe.model.width < 512:
        to = min(512, 2 * recipe.model.width)
        yield change(recipe, "model.width", to, "a wider net fits more", "arXiv 1605.07146")


def _less_augmentation(recipe: Recipe) -> Iterator[Remedy]:
    for name in ("mixing", "masking", "policy"):
        if recipe.get(f"augmentation.{name}.kind") != "none":
            path = f"augmentation.{name}.kind"
            yield change(
                recipe, path, "none", "images that are changed less are learnt sooner", "003:84, 003:70"
            )
    match recipe.augmentation.crop:
        case augmentations.ResizedCrop() as crop:
            path, largest = "augmentation.crop", min(0.35, crop.scale_max)
            if crop.scale_min < largest:
                yield change(recipe, f"{path}.scale_min", largest, "larger crops", "003:84, 003:62")
            if crop.ratio_min < 0.9 <= crop.ratio_max:
                yield change(recipe, f"{path}.ratio_min", 0.9, "less stretched", "003:84, 003:62")
            if crop.ratio_max > 1.1 >= crop.ratio_min:
                yield change(recipe, f"{path}.ratio_max", 1.1, "less stretched", "003:84, 003:62")
        case augmentations.NoCrop() | augmentations.PadCrop() | augmentations.ScaledCrop():
            pass
        case _:
            assert_never(recipe.augmentation.crop)


class _Decay(NamedTuple):
    """The usual value of a kind of weight decay, and the bounds of a proposal."""

    usual: float
    lowest: float
    highest: float
    source: str


# the guide's table (003:26-40) spans 1e-5 to 1e-4, AdamW's prior 1e-3 to 1e-1; the upper ends are ours
_L2 = _Decay(1e-4, 1e-5, 3e-3, "arXiv 1512.03385, 3.4")
_DECOUPLED = _Decay(0.02, 1e-3, 0.3, "arXiv 1711.05101")


# Of these the decay is known to be decoupled; nothing is proposed for the decay of others
DECOUPLED_OF_TIMM = ("nadamw", "muon", "adamuon", "adamw", "lion", "adanw", "adoptw", "sgdw", "lambw")


def _decays(optimizer: optimizers.Optimizer) -> tuple[tuple[str, _Decay], ...]:
    match optimizer:
        case (
            optimizers.SGD()
            | optimizers.RMSProp()
            | optimizers.Adam()
            | optimizers.Adadelta()
            | optimizers.LARS()
        ):
            return (("weight_decay", _L2),)
        case optimizers.AdamW() | optimizers.LAMB():
            return (("weight_decay", _DECOUPLED),)
        case optimizers.AdamThenSGD():
            return ("weight_decay", _DECOUPLED), ("sgd_weight_decay", _L2)
        case optimizers.Timm(name=name):
            return (("weight_decay", _DECOUPLED),) if name in DECOUPLED_OF_TIMM else ()
        case _:
            assert_never(optimizer)


def _rates(optimizer: optimizers.Optimizer) -> tuple[str, ...]:
    return ("lr", "sgd_lr") if isinstance(optimizer, optimizers.AdamThenSGD) else ("lr",)
