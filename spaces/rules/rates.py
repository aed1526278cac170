"""The rates and decays of each optimizer, as documents and papers name them for one label an image.

Rates are at batch 256. Sources such as `003:26-40` are lines of the guides in docs/sources.md: 000 is the
training tricks notes and 003 the PaddleClas guide. What was measured stands in docs/rules/learning-rate.md.
"""

from __future__ import annotations

from typing import Literal, assert_never, get_args

from spaces.domains import Value
from spaces.facts import Facts
from spaces.rules.finetuning import tuned_rate
from spaces.rules.rulings import (
    IMAGENET_IMAGES,
    MILLION,
    SHORT_RUN,
    Ruling,
    images_seen,
    log_log_interpolated,
    rounded,
    size_of,
)

OptimizerKind = Literal[
    "sgd", "rmsprop", "adam", "adamw", "adadelta", "lars", "lamb", "adam_then_sgd", "timm"
]
KINDS: tuple[OptimizerKind, ...] = get_args(OptimizerKind)

RUN_ON_IMAGENET = 90 * IMAGENET_IMAGES  # the documents name rates for runs that see so many images
SHORT_RUN_FACTOR, ADAPTIVE_SHORT_RUN_FACTOR = 20.0, 50.0
LARGE_NET_SHORT_RUN_FACTOR = 2.0
# In parameters: many short runs were measured up to the first size, one net of about the second
SMALL_NET, LARGE_NET = 100_000, 10 * MILLION
TIMM = 0.125  # the part of the trials with an optimizer of timm's, and with none of AdamW's own
SHORT_RUN_TIMM = 0.4  # in a short run from scratch of a net without attention: there Muon leads


def optimizer(facts: Facts) -> Ruling[str]:
    """Return which optimizer the documented recipe uses."""
    if facts.attention:
        return of_attention()
    if facts.pretrained:
        reason = "in short runs from pretrained weights AdamW ended ahead of SGD on 9 of 10 sets"
        return Ruling("adamw", reason, "measured: docs/decisions/0026; against 003:4")
    return Ruling("sgd", "SGD with momentum ends more accurate, given its rate and enough epochs", "003:4")


def of_attention() -> Ruling[str]:
    """Return the optimizer of networks with attention, whatever the task."""
    reason = "transformers train poorly with SGD; the documents speak of convolutional nets"
    return Ruling("adamw", reason, "arXiv 2010.11929, section 4.1; 2012.12877, table 8")


def optimizers(facts: Facts) -> tuple[dict[Value, float], str]:
    """Return the shares of optimizers in runs from scratch of nets without attention, and the reason."""
    seen = images_seen(facts)
    sgd = log_log_interpolated(seen, (SHORT_RUN, 0.35), (RUN_ON_IMAGENET, 0.7))
    timm = log_log_interpolated(seen, (SHORT_RUN, SHORT_RUN_TIMM), (RUN_ON_IMAGENET, TIMM))
    reason = f"Muon in short runs, SGD for the last accuracy of a long one: {seen:,} images are seen"
    return {"sgd": sgd, "adamw": 0.95 - sgd - timm, "lamb": 0.05, "timm": timm}, reason


def rate(facts: Facts, kind: OptimizerKind, frozen_norm: bool) -> Ruling[float]:
    """Return the documents' rate; from pretrained weights it is lower with frozen BatchNorm."""
    scratch = rate_from_scratch(kind)
    return tuned_rate(facts, kind, scratch.what, frozen_norm=frozen_norm) if facts.pretrained else scratch


def rate_from_scratch(kind: OptimizerKind) -> Ruling[float]:
    """Return the rate of an optimizer's own paper, or of the documents."""
    match kind:
        case "sgd":
            return Ruling(0.1, "0.1 at batch 256", "003:13, 003:23; arXiv 1706.02677, section 2.1")
        case "lars":
            return Ruling(0.3, "0.3 at batch 256", "arXiv 2002.05709, section 2.3")
        case "rmsprop" | "adam" | "adamw" | "adam_then_sgd" | "timm":
            return Ruling(1e-3, "Adam's own default, from scratch", "arXiv 1412.6980, section 2")
        case "lamb":
            reason = "as for AdamW; ResNet50's 0.005 at batch 2,048 is 0.0018 here"
            return Ruling(1e-3, reason, "arXiv 1904.00962; 2110.00476, table 2")
        case "adadelta":
            return Ruling(1.0, "the paper's steps as they are", "arXiv 1212.5701, section 3")
        case _:
            assert_never(kind)


def short_run_factor(facts: Facts, kind: OptimizerKind) -> float:
    """Return how much larger steps may be, from scratch, if a run sees fewer images than 90 epochs of
    ImageNet: at 30,000 images 20 times for SGD, and 50 times for Adam and its variants.

    SGD's factor falls to 2 at 10 million parameters. Attention has no factor, and Adadelta finds its step
    itself (docs/rules/learning-rate.md#short-runs).
    """
    match kind:
        case _ if facts.pretrained or facts.attention:
            return 1.0
        case "adadelta":
            return 1.0
        case "sgd" | "lars":
            small, large = (SMALL_NET, SHORT_RUN_FACTOR), (LARGE_NET, LARGE_NET_SHORT_RUN_FACTOR)
            most = log_log_interpolated(facts.parameters, small, large)
        case _:
            most = ADAPTIVE_SHORT_RUN_FACTOR
    return log_log_interpolated(images_seen(facts), (SHORT_RUN, most), (RUN_ON_IMAGENET, 1.0))


def is_sure(facts: Facts, kind: OptimizerKind) -> bool:
    """Return whether the rate held on all sets: SGD's, for a small convolutional model from scratch."""
    small = facts.parameters <= SMALL_NET and not facts.attention
    return kind == "sgd" and small and not facts.pretrained


def weight_decay(facts: Facts, kind: OptimizerKind, strong_augmentation: bool) -> Ruling[float]:
    """Return the decay: SGD's follows model, data and augmentation; L2 under a division is small.

    An L2 decay is part of the gradient, which Adam and its variants divide by its own size: weights with
    large gradients then hardly decay (arXiv 1711.05101, section 2).
    """
    match kind:
        case "sgd" | "lars":
            return _sgd_decay(facts, strong_augmentation)
        case "adamw" | "adam_then_sgd" | "timm" if facts.attention:
            return Ruling(
                0.05, "decoupled decay, as for transformers", "arXiv 2012.12877, table 9; 2103.14030"
            )
        case "adamw" | "adam_then_sgd" | "timm":
            reason = "decoupled decay for convolutional nets; the documents name no number, 0.02 is ours"
            return Ruling(0.02, reason, "arXiv 1711.05101")
        case "lamb":
            return Ruling(0.02, "decoupled decay, as for ResNet50 with LAMB", "arXiv 2110.00476, table 2")
        case "rmsprop" | "adam" | "adadelta":
            reason = "L2 decay, which division by the gradient's size distorts: small, as in MobileNetV3"
            return Ruling(1e-5, reason, "arXiv 1905.02244, section 6.1; 1711.05101, section 2")
        case _:
            assert_never(kind)


def _sgd_decay(facts: Facts, strong_augmentation: bool) -> Ruling[float]:
    """Return SGD's decay: 3e-5 for small nets to 1e-4 at ResNet50 size, x0.7 with strong augmentation, more
    for few images.

    The documents say "larger for small sets" without a number. The fourth root of the ratio to ImageNet is
    ours: 5e-4, usual on CIFAR's 50,000 images, stays within the range around it.
    """
    size = log_log_interpolated(facts.parameters, (5 * MILLION, 10**-4.5), (25 * MILLION, 1e-4))
    data = (IMAGENET_IMAGES / facts.train_images) ** 0.25
    ease = 0.7 if strong_augmentation else 1.0
    reason = f"{rounded(size):g} for {size_of(facts)}, x{data:.2g} for {facts.train_images:,} images"
    lighter = ", x0.7 with strong augmentation" if strong_augmentation else ""
    return Ruling(rounded(size * data * ease), reason + lighter, "003:26-40")
