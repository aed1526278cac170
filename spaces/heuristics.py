"""The documents' rules as formulas: each a pure function from Facts to a value or a range, with its source.

`rulings` gathers the values into the documents' own recipe, `spaces.catalog` the ranges into a space.

Sources such as 003:26-40 are lines of the five documents on training that the product follows (000 to 004);
arXiv numbers are papers. Where neither gives a number, the reason says that it is ours. Learning rates are
at batch 256. Between the sizes that a source names, rules run straight in log-log: there are no cliffs
where a formula will do. Those on augmentation stand in `spaces.augmentations`.
"""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Literal, assert_never

from spaces import augmentations
from spaces.domains import Choice, Float, Value
from spaces.facts import Facts
from spaces.rulings import MILLION, Ruling, interpolated, rounded, size_of
from trainable.recipe import Recipe
from trainable.specs.augmentations import NoCrop, PadCrop, ResizedCrop
from trainable.specs.optimizers import SGD, AdamW

OptimizerKind = Literal["sgd", "adamw"]

IMAGENET_IMAGES = 1_280_000
"""The training part that the documents' numbers were found on (003:88)."""
RESNET18 = 12 * MILLION
RESNET50 = 23 * MILLION
"""ResNet50 has 25.6 M parameters, 23.5 M with a head of ten classes; ResNet34 has at most 21.8 M."""

# --- optimizer ----------------------------------------------------------------------------------------


def optimizer(facts: Facts) -> Ruling[str]:
    """Which optimizer the first trial uses."""
    return Ruling("sgd", "SGD with momentum ends more accurate, given its rate and enough epochs", "003:4")


def optimizers(facts: Facts) -> Ruling[Choice]:
    """Which optimizers to try."""
    reason = "SGD with momentum for the last accuracy, AdamW for speed and an easier rate"
    return Ruling(Choice(("sgd", "adamw")), reason, "003:4, 004:83; arXiv 1711.05101")


def scaling(kind: OptimizerKind) -> Ruling[str]:
    """How the rate follows the batch."""
    match kind:
        case "sgd":
            return Ruling(
                "linear", "lr grows with the batch", "000:25, 003:23; arXiv 1706.02677, section 2.1"
            )
        case "adamw":
            return Ruling("sqrt", "adaptive rates grow with the root of the batch", "arXiv 2205.10287")
        case _:
            assert_never(kind)


def learning_rate(facts: Facts, kind: OptimizerKind) -> Ruling[float]:
    """The rate at batch 256."""
    match kind, facts.pretrained:
        case "sgd", False:
            return Ruling(0.1, "0.1 at batch 256", "003:13, 003:23; arXiv 1706.02677, section 2.1")
        case "sgd", True:
            rate = rounded(interpolated(facts.train_images, (1_000, 0.001), (100_000, 0.01)))
            reason = "pretrained weights: 0.001 up to 1,000 images, 0.01 from 100,000"
            return Ruling(rate, reason, "003:88")
        case _, False:
            return Ruling(1e-3, "Adam's own default, from scratch", "arXiv 1412.6980, section 2")
        case _:
            return Ruling(1e-4, "a tenth of the rate from scratch spares pretrained weights", "003:88")


def learning_rates(facts: Facts, kind: OptimizerKind) -> Ruling[Float]:
    """Half a decade and more either side of the rule, moved up for short runs.

    SGD's factor 5: of draws within a decade of the rule none ended under 72 % on Fashion-MNIST (n=32), of
    log-uniform draws over five decades 41 % ended under 20 % (n=32). AdamW gets a decade: its step is bounded
    by the rate, and the documents name no number.
    """
    rule = learning_rate(facts, kind)
    centre = rule.what * _short_run_factor(facts)
    factor = 5.0 if kind == "sgd" else 10.0
    domain = Float(rounded(centre / factor), rounded(centre * factor), log=True)
    reason = f"a factor {factor:g} either side of {rounded(centre):g}: {rule.reason}, more in short runs"
    return Ruling(domain, reason, f"{rule.source}; the factors are ours")


def _short_run_factor(facts: Facts) -> float:
    """How much larger steps may be, from scratch, where a run sees fewer images than 90 epochs of ImageNet.

    5 at 30,000 images: on 4,000 Fashion-MNIST images x 9 epochs SGD ended at 62 % with 0.1, 77 % with 0.3 and
    82 % with 1.0; AdamW at 58 % with 0.001, 76 % with 0.003 and 81 % with 0.01 to 0.03 (n=1 each). In between
    lies the 0.2 at batch 256 of CIFAR's 8 million (1512.03385, section 4.2).
    """
    if facts.pretrained:
        return 1.0
    return interpolated(facts.train_images * facts.epochs, (30_000, 5.0), (90 * IMAGENET_IMAGES, 1.0))


def momentum(facts: Facts) -> Ruling[float]:
    """SGD's momentum."""
    return Ruling(0.9, "SGD with momentum; 0.9 is the papers' value", "003:4; arXiv 1706.02677, section 5.1")


def momenta(facts: Facts) -> Ruling[Float]:
    """Momenta to try."""
    reason = "1 / (1 - momentum), by which the rate acts, from half to twice that of 0.9"
    return Ruling(Float(0.8, 0.95), reason, "003:4; arXiv 1706.02677, section 5.1")


def nesterov(facts: Facts) -> Ruling[bool]:
    """Whether SGD's momentum is Nesterov's."""
    return Ruling(True, "looks ahead along the momentum", "arXiv 1706.02677, section 5.1")


def weight_decay(facts: Facts, kind: OptimizerKind, *, strong_augmentation: bool = False) -> Ruling[float]:
    """SGD: 3e-5 for small nets to 1e-4 at ResNet50 size, x0.7 with strong augmentation, more for few images.

    The documents say "larger for small sets" without a number; the fourth root of the ratio to ImageNet is
    ours: 5e-4, usual on CIFAR's 50,000 images, stays within the range around it.
    """
    match kind:
        case "sgd":
            size = interpolated(facts.parameters, (5 * MILLION, 10**-4.5), (25 * MILLION, 1e-4))
            data = (IMAGENET_IMAGES / facts.train_images) ** 0.25
            ease = 0.7 if strong_augmentation else 1.0
            reason = f"{rounded(size):g} for {size_of(facts)}, x{data:.2g} for {facts.train_images:,} images"
            lighter = ", x0.7 with strong augmentation" if strong_augmentation else ""
            return Ruling(rounded(size * data * ease), reason + lighter, "003:26-40")
        case "adamw":
            reason = "decoupled decay for convolutional nets; the documents name no number, 0.02 is ours"
            return Ruling(0.02, reason, "arXiv 1711.05101")
        case _:
            assert_never(kind)


def weight_decays(facts: Facts, kind: OptimizerKind) -> Ruling[Float]:
    """Decays to try: for SGD a decade either side of the rule."""
    match kind:
        case "sgd":
            rule = weight_decay(facts, kind)
            domain = Float(rounded(rule.what / 10), rounded(rule.what * 10), log=True)
            return Ruling(domain, f"a decade either side of {rule.what:g}: {rule.reason}", rule.source)
        case "adamw":
            reason = "it pulls by rate times decay, and AdamW's rate is a hundredth of SGD's"
            return Ruling(Float(1e-3, 1e-1, log=True), reason, "arXiv 1711.05101; Swin and ConvNeXt: 0.05")
        case _:
            assert_never(kind)


# --- batch and schedule -------------------------------------------------------------------------------

STEPS_AN_EPOCH = 20
STEPS_A_RUN = 500
CPU_BATCH, GPU_BATCH, SMALLEST_BATCH = 128, 256, 16


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

Rulings = dict[str, Ruling[Value]]


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
        "optimizer.kind": optimizer(facts),
        "schedule.kind": schedule(facts),
        "augmentation.crop.kind": augmentations.crop_kind(facts),
        "augmentation.policy.kind": augmentations.policy(facts),
        "augmentation.mixing.kind": augmentations.mixing(facts),
        "loop.batch_size": batch_size(facts),
    }


def details(facts: Facts, recipe: Recipe) -> Rulings:
    """The values that the documents give to a recipe of these kinds and this batch."""
    return {
        **_optimizer_details(facts, recipe),
        "schedule.warmup_epochs": warmup_epochs(facts, recipe.loop.batch_size),
        "regularisation.label_smoothing": label_smoothing(facts),
        **_crop_details(facts, recipe),
        "augmentation.flip_probability": augmentations.flip_probability(facts),
        "augmentation.erasing_probability": augmentations.erasing(facts),
    }


def _optimizer_details(facts: Facts, recipe: Recipe) -> Rulings:
    kind = recipe.optimizer.kind
    strong = recipe.augmentation.policy.kind != "none" or recipe.augmentation.mixing.kind != "none"
    common: Rulings = {
        "optimizer.lr": learning_rate(facts, kind),
        "optimizer.scaling": scaling(kind),
        "optimizer.weight_decay": weight_decay(facts, kind, strong_augmentation=strong),
    }
    match recipe.optimizer:
        case SGD():
            return {**common, "optimizer.momentum": momentum(facts), "optimizer.nesterov": nesterov(facts)}
        case AdamW():
            return common
        case _:
            assert_never(recipe.optimizer)


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
