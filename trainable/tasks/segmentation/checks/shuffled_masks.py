"""Checks that a network which learns the masks of other images does not know the true ones, as it would from
a leak."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainable.checks.finding import Finding, passed, unchecked
from trainable.checks.lessons import LEAST_SHUFFLED_STEPS, train
from trainable.checks.subject import Subject
from trainable.data.source import Pixels
from trainable.tasks.segmentation.checks.association import MaskAssociation, associate_masks
from trainable.tasks.segmentation.checks.learning import FEW, answered
from trainable.tasks.segmentation.checks.sampling import part_of, window_sample, windows_of
from trainable.tasks.segmentation.data.parts import MaskedPart

STEPS = 60
BATCH = 8
TRAIN, VALIDATION = 200, 60
# Nets that learnt the masks of other images, and nothing else, had up to 0.11 after 60 steps, and 0.22 after
# 200 (two sets); those that know the masks have 0.43 and more
LEAKED_GAIN = 0.4


def check_shuffled_masks(subject: Subject, seconds: float) -> Finding:
    """Check whether the network knows true masks after learning those of other images."""
    side = subject.data.info.image_size
    sample = window_sample(subject.data, train=TRAIN, validation=VALIDATION, side=side, shown=side)
    if len(sample.validation) < FEW:
        return unchecked(
            "shuffled masks", f"too few validation images have masks that count: {len(sample.validation)}"
        )
    assert isinstance(sample.train, MaskedPart)
    windows = windows_of(sample.train, sample.info.channels)
    mixed = replace(sample, train=part_of(with_others_masks(windows, subject.recipe.loop.seed)))
    values = {"optimizer.kind": "adam", "optimizer.scaling": "none"}
    run = subject.plain_run(min(BATCH, len(windows)), values, mixed)
    with run.probing():
        steps = train(run, steps=STEPS, lr=1e-3, seconds=seconds)
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
