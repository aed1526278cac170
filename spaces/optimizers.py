"""The documents' rules for the optimizer, its rate and its decay, for every kind that a person may pin.

Learning rates are at batch 256. Sources are cited as in `spaces.heuristics`.
"""

from __future__ import annotations

from typing import Literal, assert_never, get_args

from spaces.domains import Choice, Float
from spaces.facts import Facts
from spaces.rulings import MILLION, Ruling, Rulings, interpolated, rounded, size_of
from trainable.recipe import Recipe
from trainable.specs.optimizers import LAMB, LARS, SGD, Adadelta, Adam, AdamThenSGD, AdamW, RMSProp

OptimizerKind = Literal["sgd", "rmsprop", "adam", "adamw", "adadelta", "lars", "lamb", "adam_then_sgd"]
KINDS: tuple[OptimizerKind, ...] = get_args(OptimizerKind)

IMAGENET_IMAGES = 1_280_000
"""The training part that the documents' numbers were found on (003:88)."""


def optimizer(facts: Facts) -> Ruling[str]:
    """Which optimizer the first trial uses."""
    return Ruling("sgd", "SGD with momentum ends more accurate, given its rate and enough epochs", "003:4")


def kinds(facts: Facts) -> Ruling[Choice]:
    """Which optimizers to try."""
    reason = "SGD with momentum for the last accuracy, AdamW for speed and an easier rate"
    return Ruling(Choice(("sgd", "adamw")), reason, "003:4, 004:83; arXiv 1711.05101")


def details(facts: Facts, recipe: Recipe) -> Rulings:
    """The values that the documents give to a recipe's optimizer, of the kind that it is."""
    kind = recipe.optimizer.kind
    strong = recipe.augmentation.policy.kind != "none" or recipe.augmentation.mixing.kind != "none"
    common: Rulings = {
        "optimizer.lr": learning_rate(facts, kind),
        "optimizer.scaling": scaling(kind),
        "optimizer.weight_decay": weight_decay(facts, kind, strong_augmentation=strong),
    }
    leap: Rulings = {"optimizer.momentum": momentum(facts), "optimizer.nesterov": nesterov(facts)}
    match recipe.optimizer:
        case SGD():
            return {**common, **leap}
        case AdamThenSGD():
            decay = weight_decay(facts, "sgd", strong_augmentation=strong)
            rate = learning_rate(facts, "sgd")
            return {**common, "optimizer.sgd_lr": rate, **leap, "optimizer.sgd_weight_decay": decay}
        case RMSProp() | Adam() | AdamW() | Adadelta() | LARS() | LAMB():
            return common
        case _:
            assert_never(recipe.optimizer)


# --- the rate -----------------------------------------------------------------------------------------


def scaling(kind: OptimizerKind) -> Ruling[str]:
    """How the rate follows the batch."""
    match kind:
        case "sgd":
            reason = "lr grows with the batch"
            return Ruling("linear", reason, "000:25, 003:23; arXiv 1706.02677, section 2.1")
        case "lars":
            return Ruling("linear", "lr grows with the batch, as SGD's", "arXiv 2002.05709, section 2.3")
        case "rmsprop" | "adam" | "adamw" | "lamb" | "adam_then_sgd":
            return Ruling("sqrt", "adaptive rates grow with the root of the batch", "arXiv 2205.10287")
        case "adadelta":
            return Ruling("none", "the rate is a factor on steps in the weights' units", "arXiv 1212.5701")
        case _:
            assert_never(kind)


def learning_rate(facts: Facts, kind: OptimizerKind) -> Ruling[float]:
    """The rate at batch 256."""
    if facts.pretrained and kind == "sgd":
        rate = rounded(interpolated(facts.train_images, (1_000, 0.001), (100_000, 0.01)))
        return Ruling(rate, "pretrained weights: 0.001 up to 1,000 images, 0.01 from 100,000", "003:88")
    rule = _rate_from_scratch(kind)
    if not facts.pretrained:
        return rule
    reason = "a tenth of the rate from scratch spares pretrained weights"
    return Ruling(rounded(rule.what / 10), reason, "003:88")


def learning_rates(facts: Facts, kind: OptimizerKind) -> Ruling[Float]:
    """Half a decade and more either side of the rule, moved up for short runs.

    SGD's factor 5: of draws within a decade of the rule none ended under 72 % on Fashion-MNIST (n=32), of
    log-uniform draws over five decades 41 % ended under 20 % (n=32); LARS is SGD with a rate for each layer.
    AdamW gets a decade, and the others with it: its step is bounded by the rate, and the documents name no
    number.
    """
    rule = learning_rate(facts, kind)
    centre = rule.what * _short_run_factor(facts, kind)
    factor = 5.0 if kind in ("sgd", "lars") else 10.0
    domain = Float(rounded(centre / factor), rounded(centre * factor), log=True)
    moved = "" if kind == "adadelta" else ", more in short runs"
    reason = f"a factor {factor:g} either side of {rounded(centre):g}: {rule.reason}{moved}"
    return Ruling(domain, reason, f"{rule.source}; the factors are ours")


def _rate_from_scratch(kind: OptimizerKind) -> Ruling[float]:
    match kind:
        case "sgd":
            return Ruling(0.1, "0.1 at batch 256", "003:13, 003:23; arXiv 1706.02677, section 2.1")
        case "lars":
            return Ruling(0.3, "0.3 at batch 256", "arXiv 2002.05709, section 2.3")
        case "rmsprop" | "adam" | "adamw" | "adam_then_sgd":
            return Ruling(1e-3, "Adam's own default, from scratch", "arXiv 1412.6980, section 2")
        case "lamb":
            reason = "as for AdamW; ResNet50's 0.005 at batch 2,048 is 0.0018 here"
            return Ruling(1e-3, reason, "arXiv 1904.00962; 2110.00476, table 2")
        case "adadelta":
            return Ruling(1.0, "the paper's steps as they are", "arXiv 1212.5701, section 3")
        case _:
            assert_never(kind)


def _short_run_factor(facts: Facts, kind: OptimizerKind) -> float:
    """How much larger steps may be, from scratch, where a run sees fewer images than 90 epochs of ImageNet.

    5 at 30,000 images: on 4,000 Fashion-MNIST images x 9 epochs SGD ended at 62 % with 0.1, 77 % with 0.3 and
    82 % with 1.0; AdamW at 58 % with 0.001, 76 % with 0.003 and 81 % with 0.01 to 0.03 (n=1 each). In between
    lies the 0.2 at batch 256 of CIFAR's 8 million (1512.03385, section 4.2). Adadelta finds its step itself.
    """
    if facts.pretrained or kind == "adadelta":
        return 1.0
    return interpolated(facts.train_images * facts.epochs, (30_000, 5.0), (90 * IMAGENET_IMAGES, 1.0))


# --- momentum and decay -------------------------------------------------------------------------------


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
    """By model, data and augmentation where the decay is SGD's; small where it is L2 under a division.

    An L2 decay is part of the gradient, which Adam and its kin divide by its own size: weights with large
    gradients then hardly decay (arXiv 1711.05101, section 2).
    """
    match kind:
        case "sgd" | "lars":
            return _sgd_decay(facts, strong_augmentation=strong_augmentation)
        case "adamw" | "adam_then_sgd":
            reason = "decoupled decay for convolutional nets; the documents name no number, 0.02 is ours"
            return Ruling(0.02, reason, "arXiv 1711.05101")
        case "lamb":
            return Ruling(0.02, "decoupled decay, as for ResNet50 with LAMB", "arXiv 2110.00476, table 2")
        case "rmsprop" | "adam" | "adadelta":
            reason = (
                "L2 that the division by the gradient's size distorts: small, as MobileNetV3 with RMSProp"
            )
            return Ruling(1e-5, reason, "arXiv 1905.02244, section 6.1; 1711.05101, section 2")
        case _:
            assert_never(kind)


def weight_decays(facts: Facts, kind: OptimizerKind) -> Ruling[Float]:
    """Decays to try: a decade either side of the rule where the decay is L2."""
    match kind:
        case "sgd" | "lars" | "rmsprop" | "adam" | "adadelta":
            rule = weight_decay(facts, kind)
            domain = Float(rounded(rule.what / 10), rounded(rule.what * 10), log=True)
            return Ruling(domain, f"a decade either side of {rule.what:g}: {rule.reason}", rule.source)
        case "adamw" | "adam_then_sgd":
            reason = "it pulls by rate times decay, and AdamW's rate is a hundredth of SGD's"
            return Ruling(Float(1e-3, 1e-1, log=True), reason, "arXiv 1711.05101; Swin and ConvNeXt: 0.05")
        case "lamb":
            reason = "around the 0.02 of ResNet50's recipes with LAMB; the factors are ours"
            return Ruling(Float(1e-3, 1e-1, log=True), reason, "arXiv 1904.00962; 2110.00476, table 2")
        case _:
            assert_never(kind)


def _sgd_decay(facts: Facts, *, strong_augmentation: bool) -> Ruling[float]:
    """3e-5 for small nets to 1e-4 at ResNet50 size, x0.7 with strong augmentation, more for few images.

    The documents say "larger for small sets" without a number; the fourth root of the ratio to ImageNet is
    ours: 5e-4, usual on CIFAR's 50,000 images, stays within the range around it.
    """
    size = interpolated(facts.parameters, (5 * MILLION, 10**-4.5), (25 * MILLION, 1e-4))
    data = (IMAGENET_IMAGES / facts.train_images) ** 0.25
    ease = 0.7 if strong_augmentation else 1.0
    reason = f"{rounded(size):g} for {size_of(facts)}, x{data:.2g} for {facts.train_images:,} images"
    lighter = ", x0.7 with strong augmentation" if strong_augmentation else ""
    return Ruling(rounded(size * data * ease), reason + lighter, "003:26-40")
