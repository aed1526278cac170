"""Checks that a network which learns shuffled labels does not know the true ones, as it would from a leak."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from trainable.checks.finding import Finding, passed, unchecked
from trainable.checks.lessons import LEAST_SHUFFLED_STEPS, train
from trainable.checks.subject import Subject
from trainable.data import ArrayPart
from trainable.data.source import Integers
from trainable.tasks.classification.checks.association import Association, associate
from trainable.tasks.classification.checks.learning import FEW, in_memory, logits

STEPS = 60
BATCH = 32
TRAIN, VALIDATION = 1_000, 500
# Knowledge of more than this share of the true labels' entropy, after learning shuffled ones, comes from
# elsewhere; by luck the share is below 0.1 (`association.LUCK`)
LEAKED_GAIN = 0.2


def check_shuffled(subject: Subject, seconds: float) -> Finding:
    """Check whether the network knows true labels after learning shuffled ones."""
    sample = in_memory(subject.data, train=TRAIN, validation=VALIDATION)
    if len(sample.validation) < FEW:
        return unchecked("shuffled labels", f"{len(sample.validation)} validation images are too few to tell")
    assert isinstance(sample.train, ArrayPart)
    mixed = shuffled_labels(sample.train.labels, seed=subject.recipe.loop.seed)
    data = replace(sample, train=ArrayPart(sample.train.images, mixed))
    batch = min(BATCH, len(mixed))
    run = subject.plain_run(batch, {"optimizer.kind": "adam", "optimizer.scaling": "none"}, data)
    with run.probing():
        steps = train(run, steps=STEPS, lr=1e-3, seconds=seconds)
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
    """Return the same labels on other images,
    such that within each class all labels occur in their proportions.

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
