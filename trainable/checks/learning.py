"""Checks that labels can be learnt: a small net is trained for seconds, and scored on validation images."""

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
from trainable.run import make_run

CLASSES = 10
"""A sample has only the largest classes: of a thousand classes a small net would see too few images each."""
SIDE = 32
"""At this side in pixels most labels can be recognised, and a small net learns on a CPU in seconds."""
TRAIN, VALIDATION = 2_000, 1_000
EARLY, LATE = 60, 180
"""The net is scored first after EARLY steps, when little is learnt by heart, and again after LATE more."""
KNOWN = 0.9
"""With this gain at the first scoring, the second is not needed."""
BATCH = 64
LEAST_STEPS = 100
"""After fewer steps, nothing can be said of a network that has not learnt."""

PUPIL: Mapping[str, Any] = {
    "model.kind": "resnet_small",
    "model.depth": 8,
    "model.width": 16,
    "optimizer.kind": "adam",
    "optimizer.lr": 3e-3,
    "optimizer.scaling": "none",
}
"""A small net that learns nearly anything fast tests the data: the recipe's own may be slow."""

LARGE_SIDE = 24
"""From this side in pixels on, the small net's first layer halves the image: a quarter of the time."""

FEW = 50
"""With fewer validation images a score says little: 50 images have a standard error of 7 points."""

FEW_CLASSES = 5
"""With fewer classes, an accuracy above chance may well be luck, and says little either way."""


@dataclass(frozen=True)
class Lesson:
    """Holds what a small net learnt from a sample:
    its scores on its images, on validation images, and on their mirrors."""

    train: Association
    early: Association
    """This is measured on validation images, after the first quarter of the steps."""
    validation: Association
    horizontal: Association
    vertical: Association
    confused: Mapping[Flip, tuple[str, str, float] | None]
    """For each flip, this names the class that is most often mistaken for another when mirrored, that other
    class, and how often."""
    steps: int


def teach(subject: Subject, seconds: float) -> Lesson:
    """Train a small net on a sample for at most `seconds`, and measure what it knows."""
    chosen = largest_classes(subject.data, CLASSES)
    sample = in_memory(subject.data, train=TRAIN, validation=VALIDATION, classes=chosen, side=SIDE)
    run = make_run(_pupil_recipe(subject.recipe, sample), data=sample, device=subject.device)
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
    """Check whether what is learnt from training images holds for validation images."""
    known = lesson.validation
    what = f"a small net after {lesson.steps} steps: {known.images:,} validation images {known}"
    if known.is_knowledge or lesson.early.is_knowledge:
        return passed("learning", what)
    if known.images < FEW:
        return unchecked("learning", f"{known.images} validation images are too few to tell", "gather more")
    if lesson.steps < LEAST_STEPS:
        return unchecked(
            "learning", f"there was only time for {lesson.steps} steps", "give it more time: --seconds"
        )
    what = f"{what}; training images {lesson.train}"
    if lesson.train.is_sure and not known.is_sure:
        return Finding(
            "learning",
            "error",
            what,
            "what is learnt by heart does not help with other images: labels do not belong to their images, "
            "or not in the same way in both parts",
            "look at some images with their labels; make sure that they are in the same order in each part",
        )
    return Finding(
        "learning",
        "note" if known.is_sure and known.classes < FEW_CLASSES else "warning",
        what,
        f"a small net learns almost nothing about labels from images of {SIDE} px, or labels are mixed up",
        "look at some images with their labels before anything else",
    )


def _pupil_recipe(recipe: Recipe, sample: DataSet) -> Recipe:
    stride = 2 if sample.info.image_size >= LARGE_SIDE else 1
    values = {**PLAIN, **PUPIL, "model.stem_stride": stride, "loop.batch_size": min(BATCH, len(sample.train))}
    data = resolve(recipe.data.model_copy(update={"image_size": None, "normalisation": "data"}), sample.info)
    seed = {"loop.seed": recipe.loop.seed, "precision.kind": recipe.precision.kind}
    base = Recipe(data=data, evaluation=recipe.evaluation)
    return base.with_values({**values, **seed})


def _most_confused(
    plain: Tensor, turned: Tensor, labels: Tensor, names: tuple[str, ...]
) -> tuple[str, str, float] | None:
    """Return, among images that are right unmirrored,
    the class that most often becomes one other when mirrored."""
    right = plain.argmax(1) == labels
    pairs = torch.zeros(len(names), len(names), dtype=torch.float64)
    pairs.index_put_((labels[right], turned.argmax(1)[right]), torch.ones((), dtype=torch.float64), True)
    share = pairs / pairs.sum(1, keepdim=True).clamp(min=1.0)
    share.fill_diagonal_(0.0)
    worst = int(share.argmax())
    source, target = divmod(worst, len(names))
    most = float(share[source, target])
    return (names[source], names[target], most) if most > 0.0 else None
