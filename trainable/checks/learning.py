"""Check that labels can be learnt: a small net is taught for seconds, and asked about validation images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainable.checks.association import Association, associate
from trainable.checks.finding import Finding, passed, unchecked
from trainable.checks.sampling import in_memory, largest_classes
from trainable.checks.subject import PLAIN, Subject, logits, train
from trainable.data import DataSet, resolve
from trainable.data.source import Flip
from trainable.recipe import Recipe
from trainable.training.run import Run

CLASSES = 10
"""A sample to learn from has the largest classes only: of a thousand a small net would see too few each."""
SIDE = 32
"""Pixels: what most labels can be told by, and a small net learns on a CPU in seconds."""
TRAIN, VALIDATION = 2_000, 1_000
EARLY, LATE = 60, 180
"""Steps before the first look, when little is learnt by heart, and until the second."""
KNOWN = 0.9
"""Gain at the first look that makes a second needless."""
BATCH = 64
LEAST_STEPS = 100
"""Steps below which nothing can be said of a network that has not learnt."""

PUPIL: Mapping[str, Any] = {
    "model.kind": "resnet_small",
    "model.depth": 8,
    "model.width": 16,
    "optimizer.kind": "adam",
    "optimizer.lr": 3e-3,
    "optimizer.scaling": "none",
}
"""The data are judged by a small net that learns nearly anything fast: the recipe's own may be slow."""

LARGE_SIDE = 24
"""Pixels from which the small net's first layer halves the image: a quarter of the time."""

FEW = 50
"""Validation images below which a score says little: half a hundred has a standard error of 7 points."""

FEW_CLASSES = 5
"""With fewer, better than chance may well be luck, and says little either way."""


@dataclass(frozen=True)
class Lesson:
    """What a small net learnt from a sample: of its images, of validation images, of their mirrors."""

    train: Association
    early: Association
    """On validation images, after the first quarter of the steps."""
    validation: Association
    horizontal: Association
    vertical: Association
    confused: Mapping[Flip, tuple[str, str, float] | None]
    """Of each flip, the class most often taken for another once mirrored, that other, and how often."""
    steps: int


def teach(subject: Subject, seconds: float) -> Lesson:
    """Train a small net on a sample for `seconds` at most, and see what it knows."""
    chosen = largest_classes(subject.data, CLASSES)
    sample = in_memory(subject.data, train=TRAIN, validation=VALIDATION, classes=chosen, side=SIDE)
    run = Run(_pupil_recipe(subject.recipe, sample), data=sample, device=subject.device)
    with run.probing():
        rate = run.recipe.optimizer.lr
        steps = train(run, steps=EARLY, lr=rate, seconds=seconds / 4)
        early = associate(*logits(run, "validation"))
        if early.gain < KNOWN:
            steps += train(run, steps=LATE, lr=rate, seconds=3 * seconds / 4)
        learnt = associate(*logits(run, "train"))
        plain, labels = logits(run, "validation")
        across, _ = logits(run, "validation", lambda images: images.flip(-1))
        upside_down, _ = logits(run, "validation", lambda images: images.flip(-2))
    run.close()
    names = sample.info.classes
    return Lesson(
        train=learnt,
        early=early,
        validation=associate(plain, labels),
        horizontal=associate(across, labels),
        vertical=associate(upside_down, labels),
        confused={
            "horizontal": _most_confused(plain, across, labels, names),
            "vertical": _most_confused(plain, upside_down, labels, names),
        },
        steps=steps,
    )


def check_learning(lesson: Lesson) -> Finding:
    """Whether what is learnt from training images holds for validation images."""
    known = lesson.validation
    what = f"a small net after {lesson.steps} steps: {known.images:,} validation images {known}"
    if known.is_knowledge or lesson.early.is_knowledge:
        return passed("learning", what)
    if known.images < FEW:
        return unchecked("learning", f"{known.images} validation images are too few to tell", "gather more")
    if lesson.steps < LEAST_STEPS:
        return unchecked(
            "learning", f"there was time for {lesson.steps} steps only", "give it more time: --seconds"
        )
    told = f"{what}; training images {lesson.train}"
    if lesson.train.is_sure and not known.is_sure:
        return Finding(
            "learning",
            "error",
            told,
            "what is learnt by heart does not carry over: labels do not belong to their images, or not in "
            "the same way in both parts",
            "look at some images with their labels; see that images and labels are in one order in each part",
        )
    return Finding(
        "learning",
        "note" if known.is_sure and known.classes < FEW_CLASSES else "warning",
        told,
        f"images tell a small net next to nothing about labels at {SIDE} px; or labels are mixed up",
        "look at some images with their labels before anything else",
    )


def _pupil_recipe(recipe: Recipe, sample: DataSet) -> Recipe:
    stride = 2 if sample.info.image_size >= LARGE_SIDE else 1
    values = {**PLAIN, **PUPIL, "model.stem_stride": stride, "loop.batch_size": min(BATCH, len(sample.train))}
    data = resolve(recipe.data.model_copy(update={"image_size": None}), sample.info)
    seed = {"loop.seed": recipe.loop.seed, "precision.kind": recipe.precision.kind}
    base = Recipe(data=data, evaluation=recipe.evaluation)
    return base.with_values({**values, **seed})


def _most_confused(
    plain: Tensor, turned: Tensor, labels: Tensor, names: tuple[str, ...]
) -> tuple[str, str, float] | None:
    """Among images that are right as they are: the class that goes most often to one other once mirrored."""
    right = plain.argmax(1) == labels
    pairs = torch.zeros(len(names), len(names), dtype=torch.float64)
    pairs.index_put_((labels[right], turned.argmax(1)[right]), torch.ones((), dtype=torch.float64), True)
    share = pairs / pairs.sum(1, keepdim=True).clamp(min=1.0)
    share.fill_diagonal_(0.0)
    worst = int(share.argmax())
    source, target = divmod(worst, len(names))
    most = float(share[source, target])
    return (names[source], names[target], most) if most > 0.0 else None
