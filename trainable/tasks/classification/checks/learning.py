"""Checks that labels can be learnt, which mirror images keep them, and that nothing leaks: small trainings of
seconds on a sample, scored on validation images.

A small net learns the true labels; the network of the recipe learns shuffled ones, after which it should not
know the true ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainable.array_types import Integers
from trainable.checks.finding import Finding, passed, unchecked
from trainable.checks.sampling import pixels
from trainable.checks.short_training import (
    LEAST_SHUFFLED_STEPS,
    LEAST_SKILL,
    LEAST_STEPS,
    LostSkill,
    cannot_tell,
    check_of,
    cut_short,
    train,
)
from trainable.checks.subject import PLAIN, Subject
from trainable.checks.unseen import taught_images, unseen_images
from trainable.data import ArrayPart, DataSet, Part, Split, resolve
from trainable.data.source import Flip
from trainable.data.split import some_of_each_class
from trainable.recipe import Recipe
from trainable.tasks.classification.checks.association import Association, associate
from trainable.training.evaluate import full_precision
from trainable.training.run import Run

# A sample has only the largest classes: of a thousand classes a small net would see too few images each
CLASSES = 10
SIDE = 32  # at this side in pixels most labels can be recognised, and a small net learns on a CPU in seconds
TRAIN, VALIDATION = 2_000, 1_000
# The net is scored first after EARLY steps, when little is learnt by heart, and again after LATE more
EARLY, LATE = 60, 180
KNOWN = 0.9  # with this gain at the first scoring, the second is not needed
BATCH = 64

# A small net that learns nearly anything fast tests the data: the recipe's own may be slow
PUPIL: Mapping[str, Any] = {
    "model.kind": "resnet_small",
    "model.depth": 8,
    "model.width": 16,
    "optimizer.kind": "adam",
    "optimizer.lr": 3e-3,
    "optimizer.scaling": "none",
}

# From this side in pixels on, the small net's first layer halves the image: a quarter of the time
LARGE_SIDE = 24

FEW = 50  # with fewer validation images a score says little: 50 images have a standard error of 7 points

FEW_CLASSES = 5  # with fewer classes, an accuracy above chance may well be luck, and says little either way

SHUFFLED_STEPS = 60
SHUFFLED_BATCH = 32
SHUFFLED_TRAIN, SHUFFLED_VALIDATION = 1_000, 500
# Knowledge of more than this share of the true labels' entropy, after learning shuffled ones, comes from
# elsewhere; by luck the share is below 0.1 (`association.LUCK`)
LEAKED_GAIN = 0.2


@dataclass(frozen=True)
class MirrorScore:
    """What a small net knows of the mirrors of images that it has not seen."""

    known: Association
    lost: LostSkill  # against the same images, not mirrored
    # the class that is most often mistaken for another when mirrored, that one, and how often
    confused: tuple[str, str, float] | None


@dataclass(frozen=True)
class LabelLesson:
    """What a small net learnt from a sample: its scores on its images, on validation images, and on mirrors
    of those that nothing it has seen is like."""

    train: Association
    early: Association  # on validation images, after the first quarter of the steps
    validation: Association
    unseen: int  # so many validation images are of no series that was taught, and no near-copies
    known: Association | None  # on these; None where they are too few
    mirrored: Mapping[Flip, MirrorScore]  # on the mirrors of these
    steps: int
    seconds: float  # it had so many
    hurried: bool  # the clock had a hand in it


def teach(subject: Subject, seconds: float) -> LabelLesson:
    """Train a small net on a sample for at most `seconds`, and measure what it knows."""
    data = subject.data
    chosen = largest_classes(data, CLASSES)
    taught = sample_of(data.train, chosen, TRAIN, taught_images(data))
    scored = sample_of(data.validation, chosen, VALIDATION)
    sample = small_copy(data, taught, scored, chosen, SIDE)
    new = torch.from_numpy(unseen_images(data, taught, scored, sample))
    run = subject.make_run(_pupil_recipe(subject.recipe, sample), data=sample, bench=subject.bench)
    with run.probing():
        rate = run.recipe.optimizer.lr
        steps, hurried = train(run, steps=EARLY, lr=rate, seconds=seconds / 4)
        early = associate(*logits(run, "validation"))
        if early.gain < KNOWN:
            more = train(run, steps=LATE, lr=rate, seconds=3 * seconds / 4)
            steps, hurried = steps + more.steps, hurried or more.hurried
        learnt = associate(*logits(run, "train"))
        plain, labels = logits(run, "validation")
        turned: dict[Flip, Tensor] = {
            "horizontal": logits(run, "validation", lambda images: images.flip(-1))[0],
            "vertical": logits(run, "validation", lambda images: images.flip(-2))[0],
        }
    run.close()
    enough = int(new.sum()) >= FEW
    return LabelLesson(
        train=learnt,
        early=early,
        validation=associate(plain, labels),
        unseen=int(new.sum()),
        known=associate(plain[new], labels[new]) if enough else None,
        mirrored={
            flip: _mirror_score(plain[new], answers[new], labels[new], sample.info.classes)
            for flip, answers in turned.items()
            if enough
        },
        steps=steps,
        seconds=seconds,
        hurried=hurried,
    )


def _mirror_score(plain: Tensor, turned: Tensor, labels: Tensor, names: tuple[str, ...]) -> MirrorScore:
    known, mirrored = associate(plain, labels), associate(turned, labels)
    return MirrorScore(
        mirrored,
        lost_skill(known, mirrored, plain.argmax(1) == labels, turned.argmax(1) == labels),
        _most_confused(plain, turned, labels, names),
    )


def lost_skill(known: Association, mirrored: Association, right: Tensor, still_right: Tensor) -> LostSkill:
    """Return the share of the skill that is lost on mirrors of the same images, which are [N] right or wrong.

    Only images that are right in one way alone tell of the difference (McNemar 1947, Psychometrika 12): of n
    images, with b and c of them, it has a variance of (b + c - (b - c)² / n) / n². One more is counted, as
    no image that differs does not mean that none ever would.
    """
    only, mirror_only = int((right & ~still_right).sum()), int((~right & still_right).sum())
    variance = (only + mirror_only + 1 - (only - mirror_only) ** 2 / known.images) / known.images**2
    above_chance = max(known.accuracy - known.chance, 1e-9)
    return LostSkill(1.0 - mirrored.skill / max(known.skill, 1e-9), math.sqrt(variance) / above_chance)


def check_learning(lesson: LabelLesson) -> Finding:
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
        f"a small net learns {'only some' if known.is_sure else 'almost nothing'} of the labels from images "
        f"of {SIDE} px: small details may decide, or labels are mixed up",
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
    """Return, among images that are right unmirrored, the class that most often becomes one other when
    mirrored."""
    right = plain.argmax(1) == labels
    pairs = torch.zeros(len(names), len(names), dtype=torch.float64)
    pairs.index_put_((labels[right], turned.argmax(1)[right]), torch.ones((), dtype=torch.float64), True)
    share = pairs / pairs.sum(1, keepdim=True).clamp(min=1.0)
    share.fill_diagonal_(0.0)
    worst = int(share.argmax())
    source, target = divmod(worst, len(names))
    most = float(share[source, target])
    return (names[source], names[target], most) if most > 0.0 else None


# --- mirror images ----------------------------------------------------------------------------------


def check_flips(lesson: LabelLesson, allowed: tuple[Flip, ...]) -> Iterator[Finding]:
    """Yield whether labels survive the flips that the data allow, and whether they may survive the
    horizontal one.

    The clock has no say in it, and neither have images that the net may know by heart.
    """
    asked: tuple[Flip, ...] = allowed if "horizontal" in allowed else (*allowed, "horizontal")
    if lesson.hurried:
        for flip in asked:
            yield cut_short(flip, lesson.steps, EARLY + LATE, lesson.seconds)
        return
    known = lesson.known
    if known is None:
        for flip in asked:
            why = (
                f"training has the series or a near-copy of all but {lesson.unseen} of the validation images "
                f"that were looked at, and knows them by heart ({FEW} new ones are needed)"
            )
            yield cannot_tell(flip, why, "keep what was taken together in one part: data.group")
        return
    if not known.is_sure or known.skill < LEAST_SKILL:
        for flip in allowed:
            yield cannot_tell(flip, f"the small net knows too little ({known})")
        return
    for flip in allowed:
        yield _allowed_flip(flip, known, lesson.mirrored[flip])
    if "horizontal" not in allowed:
        yield _forbidden_flip(known, lesson.mirrored["horizontal"])


def _in_words(known: Association, mirrored: MirrorScore) -> str:
    return (
        f"{known.accuracy:.1%} of {known.images} images unlike those of training are right, of their mirror "
        f"images {mirrored.known.accuracy:.1%}"
    )


def _allowed_flip(flip: Flip, known: Association, mirrored: MirrorScore) -> Finding:
    what, changes = _in_words(known, mirrored), mirrored.lost.changes
    if changes is None:
        return cannot_tell(flip, f"{what}: {mirrored.lost}")
    if not changes:
        return passed(check_of(flip), what)
    pair = mirrored.confused
    swapped = f"; {pair[0]} mirrored is taken for {pair[1]} in {pair[2]:.0%}" if pair is not None else ""
    return Finding(
        check_of(flip),
        "warning",
        what + swapped,
        "the mirror changes labels, or makes images that never occur: as augmentation it teaches wrong ones",
        f"take {flip} out of data.flips",
    )


def _forbidden_flip(known: Association, mirrored: MirrorScore) -> Finding:
    what, harmless = _in_words(known, mirrored), mirrored.lost.is_harmless
    if harmless is None:
        return cannot_tell("horizontal", f"{what}: {mirrored.lost}")
    if not harmless:
        return passed("horizontal flip", f"not allowed, and labels do not seem to survive it: {what}")
    return Finding(
        "horizontal flip",
        "note",
        f"not allowed, but a net that saw no mirror image knows them as well: {what}",
        "labels seem to survive it: it would be free augmentation, if you know that no label changes",
        "data.flips: [horizontal]",
    )


# --- the sample, and answers to it ------------------------------------------------------------------


def in_memory(
    data: DataSet, *, train: int, validation: int, classes: Integers | None = None, side: int | None = None
) -> DataSet:
    """Return a small copy to learn from:
    at most so many images of each part, of some classes, at most `side` px.

    Classes keep their proportions, with an image of each or more where there are no more classes than images,
    and get new labels; means and deviations stay those of the whole set.
    """
    chosen = classes if classes is not None else np.arange(len(data.info.classes))
    taught, scored = sample_of(data.train, chosen, train), sample_of(data.validation, chosen, validation)
    return small_copy(data, taught, scored, chosen, side)


def small_copy(
    data: DataSet, taught: Integers, scored: Integers, chosen: Integers, side: int | None = None
) -> DataSet:
    """Return a copy of the training and validation images at these positions, with the chosen classes as new
    labels."""
    side = min(side or data.info.image_size, data.info.image_size)
    trained = _part(data, data.train, chosen, taught, side)
    validated = _part(data, data.validation, chosen, scored, side)
    counts = np.bincount(trained.labels, minlength=len(chosen))
    info = replace(
        data.info,
        classes=tuple(data.info.classes[each] for each in chosen),
        class_counts=tuple(counts.tolist()) if counts.all() else (),  # of more classes than images
        image_size=side,
        train_images=len(trained),
        validation_images=len(validated),
        test_images=0,
        in_memory=True,
    )
    return DataSet(info, trained, validated, None, data.resize)


def largest_classes(data: DataSet, most: int) -> Integers:
    """Return the classes with most training images among those that validation has too, in order."""
    count = len(data.info.classes)
    trained = np.bincount(data.train.labels, minlength=count)
    trained[np.bincount(data.validation.labels, minlength=count) == 0] = 0
    largest = np.argsort(-trained, kind="stable")[:most]
    return np.sort(largest[trained[largest] > 0])


def sample_of(part: Part, classes: Integers, most: int, among: Integers | None = None) -> Integers:
    """Return the positions of at most so many images of some classes, in proportion, perhaps among some."""
    members = np.flatnonzero(np.isin(part.labels, classes))
    members = members if among is None else np.intersect1d(members, among)
    return members[some_of_each_class(part.labels[members], most)]


def _part(data: DataSet, part: Part, classes: Integers, positions: Integers, side: int) -> ArrayPart:
    labels = np.searchsorted(classes, part.labels[positions])
    return ArrayPart(pixels(data, part, positions, side), labels.astype(np.int64))


@torch.inference_mode()
def logits(run: Run, part: Split, turned: Callable[[Tensor], Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Return what a run's network answers to a part's images, perhaps turned, [N, classes], and the labels
    [N].

    Both are on the CPU. Call it in `probing`: it leaves the network in evaluation mode.
    """
    run.model.eval()
    answers, truth = [], []
    for images, labels in run.images.evaluate(part):
        shown = images if turned is None else turned(images)
        answers.append(full_precision(run.model(shown)).cpu())
        truth.append(labels.cpu())
    return torch.cat(answers), torch.cat(truth)


def check_shuffled(subject: Subject, seconds: float) -> Finding:
    """Check whether the network knows true labels after learning shuffled ones."""
    sample = in_memory(subject.data, train=SHUFFLED_TRAIN, validation=SHUFFLED_VALIDATION)
    if len(sample.validation) < FEW:
        return unchecked("shuffled labels", f"{len(sample.validation)} validation images are too few to tell")
    assert isinstance(sample.train, ArrayPart)
    mixed = shuffled_labels(sample.train.labels, seed=subject.recipe.loop.seed)
    data = replace(sample, train=ArrayPart(sample.train.images, mixed))
    batch = min(SHUFFLED_BATCH, len(mixed))
    run = subject.plain_run(batch, {"optimizer.kind": "adam", "optimizer.scaling": "none"}, data)
    with run.probing():
        steps, _ = train(run, steps=SHUFFLED_STEPS, lr=1e-3, seconds=seconds)
        known = associate(*logits(run, "validation"))
    run.close()
    return shuffled_finding(known, steps)


def shuffled_finding(known: Association, steps: int) -> Finding:
    """Return the finding about what is known of true labels after so many steps on shuffled ones."""
    what = f"after {steps} steps on shuffled labels validation images are {known}"
    if known.is_beyond_luck or (known.is_sure and known.gain > LEAKED_GAIN):
        return Finding(
            "shuffled labels",
            "error",
            what,
            "it knows the labels from elsewhere: weights trained on these images, or a leak in the code",
            "find out where model.weights come from; no validation score can be trusted until then",
        )
    if steps < LEAST_SHUFFLED_STEPS:
        return unchecked(
            "shuffled labels", f"there was only time for {steps} steps", "give it more time: --seconds"
        )
    return passed("shuffled labels", what)


def shuffled_labels(labels: Integers, seed: int) -> Integers:
    """Deal the labels to other images, so that within each class all labels occur in their proportions.

    After a plain shuffle the images of a class lean to some label, perhaps to their own: nets learn this, and
    with two classes know all or none by luck. Here labels are dealt in steps of the golden ratio, which
    spread evenly over every stretch (three-distance theorem), so no class leans.
    """
    generator = np.random.default_rng(seed)
    count = len(labels)
    order = np.lexsort((generator.permutation(count), labels))
    step = max(1, round(count * (math.sqrt(5) - 1) / 2))
    while math.gcd(step, count) > 1:
        step += 1
    shuffled = np.empty_like(labels)
    shuffled[order] = np.sort(labels)[(np.arange(count) * step + int(generator.integers(count))) % count]
    return shuffled
