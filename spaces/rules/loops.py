"""The documents' rules for the loop: batch, length and number format.

Sources such as `004:49` are lines of the guides in docs/sources.md: 000 is the training tricks notes, 001
the PyTorch tuning guide, 002 the PyTorch speed notes, 003 the PaddleClas guide and 004 the 17 ways guide.
"""

from __future__ import annotations

import math

from spaces.facts import Facts
from spaces.rules.rulings import Ruling, images_seen
from trainable.recipe.network_cost import GPU_IMAGES, fastest, pays_to_compile
from trainable.recipe.training import Compiling

STEPS_AN_EPOCH = 20
STEPS_A_RUN = 500
CPU_BATCH, GPU_BATCH, SMALLEST_BATCH = 128, 256, 16
SMALLEST_TUNED_BATCH = 32  # from pretrained weights
WANTED_EPOCHS = 200
# BiT fine-tunes sets of fewer images than these for so many steps (arXiv 1912.11370, section 3.3)
FINE_TUNED_IMAGES = ((20_000, 500), (500_000, 10_000), (math.inf, 20_000))
BIT_BATCH = 512
BATCH_SOURCE = "000:57, 003:23, 004:43-49; the counts of steps are ours"


def batch_size(facts: Facts) -> Ruling[int]:
    """Return the largest power of two under three limits; it is not searched: the rate is tuned for it.

    The documents warn that large batches generalise worse (17 ways guide, 004:49), and a run needs some 500
    steps. A CPU is no faster above 128; 256 is the documents' batch. From pretrained weights it is at least
    32, which takes half the steps of 16 for about the same accuracy (docs/rules/batch.md).
    """
    smallest = SMALLEST_TUNED_BATCH if facts.pretrained else SMALLEST_BATCH
    hardware = GPU_BATCH if facts.gpus else CPU_BATCH
    epoch, run = facts.train_images // STEPS_AN_EPOCH, facts.train_images * facts.epochs // STEPS_A_RUN
    cap = min(hardware, max(smallest, min(epoch, run)), facts.train_images)
    where = "a GPU" if facts.gpus else "a CPU"
    reason = (
        f"a power of two, at most {hardware} on {where}, for {STEPS_AN_EPOCH} steps an epoch and "
        f"{STEPS_A_RUN} a run of {facts.train_images:,} images x {facts.epochs} epochs; at least "
        f"{smallest}"
    )
    return Ruling(2 ** int(math.log2(cap)), reason, BATCH_SOURCE)


def wanted_epochs(facts: Facts) -> Ruling[int]:
    """Return how long the documents would train: 200 epochs with a cosine, whose rates stay high for long.

    ResNet50's standard run is 120 epochs in steps of 30. Both numbers are for ImageNet. From pretrained
    weights it is BiT's rule, which counts steps. The study's budget decides.
    """
    if facts.pretrained:
        return _fine_tuned_epochs(facts)
    share = facts.epochs / WANTED_EPOCHS
    reason = (
        f"a cosine wants some {WANTED_EPOCHS} epochs, ResNet50's steps took 120 of ImageNet; the budget of "
        f"{facts.epochs} is {share:.0%} of it"
    )
    return Ruling(WANTED_EPOCHS, reason, "003:13-17")


def _fine_tuned_epochs(facts: Facts) -> Ruling[int]:
    steps = next(steps for most, steps in FINE_TUNED_IMAGES if facts.train_images < most)
    wanted = max(1, round(steps * BIT_BATCH / facts.train_images))
    reason = (
        f"BiT fine-tunes sets of this size for {steps:,} steps of {BIT_BATCH} images, {steps * BIT_BATCH:,} "
        f"images in all; the budget of {facts.epochs} epochs shows {images_seen(facts):,}"
    )
    return Ruling(wanted, reason, "arXiv 1912.11370, section 3.3")


def precision(facts: Facts) -> Ruling[str]:
    """Return the fastest number format in timed steps; it is not searched: it changes speed alone."""
    source = "000:5, 001:212, 002:16, 004:51; arXiv 1710.03740"
    if not facts.speeds:
        usual = "bf16 where the GPU computes in it, else fp16 on a GPU and fp32 on a CPU"
        return Ruling("auto", usual + _untimed(facts), source)
    return Ruling(fastest(facts.speeds).number_format, _measured(facts), source)


def channels_last(facts: Facts) -> Ruling[bool]:
    """Return the memory layout that is fastest in timed steps, by default that of convolution kernels."""
    source = "torch's documentation"
    if not facts.speeds:
        return Ruling(True, "the layout that convolutions are fastest in" + _untimed(facts), source)
    return Ruling(fastest(facts.speeds).channels_last, _measured(facts), source)


def compiled(facts: Facts) -> Ruling[Compiling]:
    """Return how the model is compiled: where timed steps say that it saves twice its own time, over all
    trials at their full length; those that are stopped are what the factor of two is for."""
    source = "torch's documentation"
    timed = [each for each in facts.speeds if each.compile_seconds is not None]
    if not timed:
        return Ruling(False, "a minute of compiling, which short runs do not win back", source)
    images = facts.trials * images_seen(facts)
    pays = pays_to_compile(facts.speeds, images, facts.trials)
    how: Compiling = "blocks" if timed[-1].by_blocks else True
    reason = (
        f"{_measured(facts)}; compiling {'saves' if pays else 'does not save'} twice what it takes in "
        f"{images:,} images of training"
    )
    return Ruling(how if pays else False, reason, source)


def _untimed(facts: Facts) -> str:
    longer = f"; a GPU is timed only for {GPU_IMAGES:,} images of training or more, as it takes minutes"
    images = images_seen(facts) * facts.trials
    return longer if facts.gpus and images < GPU_IMAGES else ""


def _measured(facts: Facts) -> str:
    found = ", ".join(map(str, facts.speeds))
    return f"timed steps of this model, images a second: {found}; another than the first must be 15 % faster"
