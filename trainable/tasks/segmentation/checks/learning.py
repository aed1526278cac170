"""Checks that masks can be learnt, which mirror images keep them, and that nothing leaks: small trainings of
seconds on windows, scored on validation images.

A small net learns the true masks; the network of the recipe learns those of other images, after which it
should not know the true ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainable.checks.finding import MORE_VALIDATION, Advice, Finding, Level, passed, unchecked
from trainable.checks.short_training import (
    LEAST_SHUFFLED_STEPS,
    LEAST_SKILL,
    LEAST_STEPS,
    NOISE_POINTS,
    LostSkill,
    cannot_tell,
    check_of,
    cut_short,
    train,
)
from trainable.checks.subject import PLAIN, Subject
from trainable.checks.unseen import has_shared_series
from trainable.data import DataSet, resolve
from trainable.data.measure import some
from trainable.data.source import Flip, Pixels
from trainable.recipe import Recipe
from trainable.recipe.data import Split
from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.checks.association import MaskAssociation, associate_masks, at_one_side
from trainable.tasks.segmentation.checks.sampling import part_of, window_sample, windows_of
from trainable.tasks.segmentation.data.loading import PIXELS_AT_ONCE
from trainable.tasks.segmentation.data.parts import MaskedPart
from trainable.training.evaluate import full_precision
from trainable.training.run import Run

# A window shows so many pixels of an image, in half as many: what a small net on a CPU learns in seconds
WINDOW, SHOWN = 128, 64
TRAIN, VALIDATION = 600, 100
STEPS = 200
BATCH = 16
FEW = 8  # of fewer validation images, one order in 5,040 or less fits best by luck, and nothing is sure

# A small net that learns nearly anything fast tests the data: the recipe's own may be slow
PUPIL: Mapping[str, Any] = {
    "model.kind": "unet_small",
    "model.levels": 2,
    "model.width": 12,
    "optimizer.kind": "adam",
    "optimizer.lr": 3e-3,
    "optimizer.scaling": "none",
}

HEART = 2.0  # masks are learnt by heart where so many times as much is gained on training images; ours

SHUFFLED_STEPS = 60
SHUFFLED_BATCH = 8
SHUFFLED_TRAIN, SHUFFLED_VALIDATION = 200, 60
# Nets that learnt the masks of other images, and nothing else, had up to 0.11 after 60 steps, and 0.22 after
# 200 (two sets); those that know the masks have 0.43 and more
LEAKED_GAIN = 0.4


@dataclass(frozen=True)
class MaskLesson:
    """What a small net learnt from windows of images: its scores on their masks, on those of validation
    images, and on those of their mirrors."""

    train: MaskAssociation
    validation: MaskAssociation
    mirrored: Mapping[Flip, MaskAssociation]
    # for each flip, the class most often mistaken for another when mirrored, that one, and in how many pixels
    confused: Mapping[Flip, tuple[str, str, float] | None]
    steps: int
    seconds: float  # it had so many
    hurried: bool = False  # the clock had a hand in it
    memorised: bool = False  # training has images of the series of validation images


def teach_masks(subject: Subject, seconds: float) -> MaskLesson | Finding:
    """Train a small net on windows for at most `seconds`, and measure what it knows; a finding if there are
    too few validation images to tell."""
    side = min(subject.data.info.image_size, WINDOW)
    sample = window_sample(subject.data, train=TRAIN, validation=VALIDATION, side=side, shown=SHOWN)
    if len(sample.validation) < FEW:
        return unchecked(
            "learning", f"too few validation images have masks that count: {len(sample.validation)}"
        )
    run = subject.make_run(_pupil_recipe(subject.recipe, sample), data=sample, bench=subject.bench)
    try:
        with run.probing():
            steps, hurried = train(run, steps=STEPS, lr=run.recipe.optimizer.lr, seconds=seconds)
            learnt = associate_masks(*answered(run, "train"))
            plain, masks = answered(run, "validation")
            turned: dict[Flip, Tensor] = {
                "horizontal": answered(run, "validation", lambda images: images.flip(-1))[0],
                "vertical": answered(run, "validation", lambda images: images.flip(-2))[0],
            }
    finally:
        run.close()
    names = sample.info.classes
    return MaskLesson(
        train=learnt,
        validation=associate_masks(plain, masks),
        mirrored={flip: associate_masks(logits, masks) for flip, logits in turned.items()},
        confused={flip: _most_confused(plain, logits, masks, names) for flip, logits in turned.items()},
        steps=steps,
        seconds=seconds,
        hurried=hurried,
        memorised=has_shared_series(subject.data),
    )


@torch.inference_mode()
def answered(
    run: Run, part: Split, turned: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Return what a run's network answers to windows of a part, at most VALIDATION of them, and their masks,
    at `SIDE` pixels at most and on the CPU: [N, K, h, w] and [N, h, w].

    Windows may be shown turned, by a function that turns its own result back. Call it in `probing`: it leaves
    the network in evaluation mode.
    """
    run.model.eval()
    positions = some(len(run.parts[part]), VALIDATION)
    at_once = max(1, PIXELS_AT_ONCE // run.info.image_size**2)
    found = []
    for images, masks in run.images.evaluate(part, positions, at_once):
        logits = full_precision(run.model(images if turned is None else turned(images)))
        logits = logits if turned is None else turned(logits)
        found.append([each.cpu() for each in at_one_side(logits, masks)])
    return torch.cat([logits for logits, _ in found]), torch.cat([masks for _, masks in found])


def _pupil_recipe(recipe: Recipe, sample: DataSet) -> Recipe:
    values = {**PLAIN, **PUPIL, "loop.batch_size": min(BATCH, len(sample.train))}
    data = resolve(recipe.data.model_copy(update={"image_size": None, "normalisation": "data"}), sample.info)
    task = {"task.kind": "segmentation", "loop.seed": recipe.loop.seed}
    base = Recipe().with_values({**task, "precision.kind": recipe.precision.kind, **values})
    return base.model_copy(update={"data": data})


def _most_confused(
    plain: Tensor, turned: Tensor, masks: Tensor, names: tuple[str, ...]
) -> tuple[str, str, float] | None:
    """Return, among pixels that are right unmirrored, the class that most often becomes one other."""
    right = (plain.argmax(1) == masks) & (masks != IGNORED)
    pairs = masks[right] * len(names) + turned.argmax(1)[right]
    counts = torch.bincount(pairs, minlength=len(names) ** 2).view(len(names), len(names)).double()
    shares = counts / counts.sum(1, keepdim=True).clamp_min(1.0)
    shares.fill_diagonal_(0.0)
    source, target = divmod(int(shares.argmax()), len(names))
    most = float(shares[source, target])
    return (names[source], names[target], most) if most > 0.0 else None


# --- what the lesson says ---------------------------------------------------------------------------


def check_mask_lessons(subject: Subject, seconds: float) -> Iterator[Finding]:
    """Yield findings about what a small net learns from the masks, whatever the recipe's network is."""
    lesson = teach_masks(subject, seconds)
    if isinstance(lesson, Finding):
        yield lesson
        return
    yield from check_masks_learnt(lesson, len(subject.data.validation))
    yield from check_mask_flips(lesson, subject.data.info.flips)


def check_masks_learnt(lesson: MaskLesson, images: int) -> Iterator[Finding]:
    """Yield whether what is learnt from training images holds for validation images, and how much a score of
    so many validation images varies."""
    known = lesson.validation
    what = f"a small net after {lesson.steps} steps: {known.images:,} windows of validation images: {known}"
    if known.is_knowledge:
        yield passed("learning", what)
        yield _validation_size(known, images)
        return
    if lesson.steps < LEAST_STEPS:
        why = f"there was only time for {lesson.steps} steps"
        yield unchecked("learning", why, "give it more time: --seconds")
        return
    what = f"{what}; of training images: {lesson.train}"
    look = "look at some images with their masks, and at how their names are paired"
    if lesson.train.is_knowledge and lesson.train.gain > HEART * known.gain:
        means = (
            "what is learnt by heart does not help with other images: masks do not belong to their images, "
            "or not in the same way in both parts"
        )
        yield Finding("learning", "error", what, means, look)
        return
    level: Level = "note" if known.is_sure else "warning"
    means = (
        f"a small net learns {'little' if known.is_sure else 'nothing'} of where classes are in an image: "
    )
    means += "they are hard to tell apart at this size, or masks are those of other images"
    yield Finding("learning", level, what, means, look)


def _validation_size(known: MaskAssociation, images: int) -> Finding:
    points = 100.0 * known.deviation / math.sqrt(images)
    what = (
        f"{images:,} validation images: the mean IoU of one differs by {100 * known.deviation:.0f} points "
        f"from that of another, so a score of all has a standard error of about {points:.1f} points"
    )
    if points <= NOISE_POINTS:
        return passed("validation size", what)
    return Finding(
        "validation size",
        "warning",
        what,
        "the validation part is so small that which of two similar recipes is better is luck",
        advice=(*MORE_VALIDATION, Advice("gather more images")),
    )


# --- mirror images ----------------------------------------------------------------------------------


def check_mask_flips(lesson: MaskLesson, allowed: tuple[Flip, ...]) -> Iterator[Finding]:
    """Yield whether classes survive the flips that the data allow, and whether they may survive the
    horizontal one: a net that saw no mirror image answers to mirrored windows. Bounds are those of labels."""
    known = lesson.validation
    asked: tuple[Flip, ...] = allowed if "horizontal" in allowed else (*allowed, "horizontal")
    if lesson.hurried:
        for flip in asked:
            yield cut_short(flip, lesson.steps, STEPS, lesson.seconds)
        return
    if lesson.memorised:
        why = "training has images of the series of validation images, and knows them by heart"
        for flip in asked:
            yield cannot_tell(flip, why, "keep what was taken together in one part: data.group")
        return
    if not known.is_knowledge or known.skill < LEAST_SKILL:
        for flip in allowed:
            yield cannot_tell(flip, f"the small net knows too little ({known})")
        return
    for flip in allowed:
        yield _allowed(flip, lesson)
    if "horizontal" not in allowed:
        yield _forbidden(lesson)


def _in_words(flip: Flip, lesson: MaskLesson) -> str:
    return (
        f"on validation windows a small net has a mean IoU of {lesson.validation.mean_iou:.1%}, on their "
        f"mirror images {lesson.mirrored[flip].mean_iou:.1%}"
    )


def _lost(flip: Flip, lesson: MaskLesson) -> LostSkill:
    """Return the share of the net's skill that it has not on mirror images; its standard error is that of a
    mean IoU of so many images, which is rather too large for a difference on the same images."""
    known = lesson.validation
    error = known.deviation / math.sqrt(known.images) / max(known.mean_iou - known.chance, 1e-9)
    return LostSkill(1.0 - lesson.mirrored[flip].skill / known.skill, error)


def _allowed(flip: Flip, lesson: MaskLesson) -> Finding:
    what, lost = _in_words(flip, lesson), _lost(flip, lesson)
    if lost.changes is None:
        return cannot_tell(flip, f"{what}: {lost}")
    if not lost.changes:
        return passed(check_of(flip), what)
    pair = lesson.confused[flip]
    swapped = f"; {pair[0]} mirrored is taken for {pair[1]} in {pair[2]:.0%} of its pixels" if pair else ""
    return Finding(
        check_of(flip),
        "warning",
        what + swapped,
        "the mirror changes classes, or makes images that never occur: as augmentation it teaches wrong ones",
        f"take {flip} out of data.flips",
    )


def _forbidden(lesson: MaskLesson) -> Finding:
    what, lost = _in_words("horizontal", lesson), _lost("horizontal", lesson)
    if lost.is_harmless is None:
        return cannot_tell("horizontal", f"{what}: {lost}")
    if not lost.is_harmless:
        return passed("horizontal flip", f"not allowed, and classes do not seem to survive it: {what}")
    return Finding(
        "horizontal flip",
        "note",
        f"not allowed, but harmless to what was learnt: {what}",
        "classes seem to survive it: it would be free augmentation, if you know that no class changes",
        "data.flips: [horizontal]",
    )


def check_shuffled_masks(subject: Subject, seconds: float) -> Finding:
    """Check whether the network knows true masks after learning those of other images."""
    side = subject.data.info.image_size
    sample = window_sample(
        subject.data, train=SHUFFLED_TRAIN, validation=SHUFFLED_VALIDATION, side=side, shown=side
    )
    if len(sample.validation) < FEW:
        return unchecked(
            "shuffled masks", f"too few validation images have masks that count: {len(sample.validation)}"
        )
    assert isinstance(sample.train, MaskedPart)
    windows = windows_of(sample.train, sample.info.channels)
    mixed = replace(sample, train=part_of(with_others_masks(windows, subject.recipe.loop.seed)))
    values = {"optimizer.kind": "adam", "optimizer.scaling": "none"}
    run = subject.plain_run(min(SHUFFLED_BATCH, len(windows)), values, mixed)
    with run.probing():
        steps, _ = train(run, steps=SHUFFLED_STEPS, lr=1e-3, seconds=seconds)
        known = associate_masks(*answered(run, "validation"))
    run.close()
    return shuffled_finding(known, steps)


def shuffled_finding(known: MaskAssociation, steps: int) -> Finding:
    """Return the finding about what is known of true masks after so many steps on others."""
    what = f"after {steps} steps on the masks of other images, windows of validation images: {known}"
    if known.is_sure and known.gain > LEAKED_GAIN:
        return Finding(
            "shuffled masks",
            "error",
            what,
            "it knows the masks from elsewhere: weights trained on these images, or a leak in the code",
            "find out where model.weights come from; no validation score can be trusted until then",
        )
    if steps < LEAST_SHUFFLED_STEPS:
        why = f"there was only time for {steps} steps"
        return unchecked("shuffled masks", why, "give it more time: --seconds")
    return passed("shuffled masks", what)


def with_others_masks(windows: Pixels, seed: int) -> Pixels:
    """Return windows, uint8 [n, C + 1, side, side], each with the mask of another one."""
    order = np.random.default_rng(seed).permutation(len(windows))
    mixed = windows.copy()
    mixed[order, -1] = windows[np.roll(order, 1), -1]
    return mixed
