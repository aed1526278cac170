"""Holds the documents' rules for the optimizer, its rate and its decay, for every kind that a person may pin.

Learning rates are at batch 256.

Sources such as `001:22-76` are lines of the guides in docs/sources.md: 000 is the training tricks notes,
001 the PyTorch tuning guide, 002 the PyTorch speed notes, 003 the PaddleClas guide and 004 the 17 ways
guide.
"""

from __future__ import annotations

from typing import Literal, assert_never, get_args

from spaces.domains import Float, Value, Values
from spaces.facts import Facts
from spaces.priors import Confidence, Normal
from spaces.rules.finetuning import freezes_norm, tuned_rate
from spaces.rules.mask_losses import MEASURED
from spaces.rules.mask_rates import PUBLISHED_RUN, mask_decay, mask_rate, mask_short_run_factor
from spaces.rules.rulings import (
    IMAGENET_IMAGES,
    MILLION,
    SHORT_RUN,
    Distribution,
    Ruling,
    Rulings,
    around,
    heuristic,
    images_seen,
    log_log_interpolated,
    number_at,
    rounded,
    size_of,
    weighted_choice,
    word_at,
)

OptimizerKind = Literal[
    "sgd", "rmsprop", "adam", "adamw", "adadelta", "lars", "lamb", "adam_then_sgd", "timm"
]
KINDS: tuple[OptimizerKind, ...] = get_args(OptimizerKind)

RUN_ON_IMAGENET = 90 * IMAGENET_IMAGES
"""The documents name rates for runs that see this many images."""
SHORT_RUN_FACTOR, ADAPTIVE_SHORT_RUN_FACTOR = 20.0, 50.0
LARGE_NET_SHORT_RUN_FACTOR = 2.0
SMALL_NET, LARGE_NET = 100_000, 10 * MILLION
"""Rates were measured in many short runs up to the first size in parameters,
and in one net of about the second size."""
LARS_BATCH = 4096
TIMM = 0.125
"""This part of the trials has an optimizer of timm's, and none of AdamW's own."""
SHORT_RUN_TIMM = 0.4
"""The part in a short run from scratch of a net without attention: there Muon leads."""
DOCUMENTS_TUNED_RATE = 0.001
"""This is SGD's rate for pretrained weights in the documents (003:88)."""
DECADES = 1.5
"""Rates and decays are tried up to this far above and below their rule: a factor of 30."""
_SWEEP = "001:22-76; arXiv 1506.01186, section 3.3; the middle is ours"


def optimizer(facts: Facts) -> Ruling[str]:
    """Return which optimizer the documented recipe uses."""
    if facts.attention:
        reason = "transformers train poorly with SGD; the documents speak of convolutional nets"
        return Ruling("adamw", reason, "arXiv 2010.11929, section 4.1; 2012.12877, table 8")
    if facts.dense:
        reason = "at its best rate AdamW ended ahead of SGD in short runs, and SegFormer has it"
        return Ruling("adamw", reason, f"{MEASURED}; arXiv 2105.15203, section 4.1")
    if facts.pretrained:
        reason = "in short runs from pretrained weights AdamW ended ahead of SGD on 9 of 10 sets"
        return Ruling("adamw", reason, "measured: docs/decisions/0026; against 003:4")
    return Ruling("sgd", "SGD with momentum ends more accurate, given its rate and enough epochs", "003:4")


@heuristic(
    "SGD has 7 of 10 trials of a long run; in a short one SGD and Muon have a third each, AdamW a fifth.",
    """
    The documents find adaptive optimizers faster and SGD more accurate in the end (003:4, 001:136). The best
    of 161 recipes with SGD and of 95 with AdamW ended at nearly the same accuracy on 4,000 Fashion-MNIST
    images x 9 epochs, 86.8 and 86.6 %; on 1,442 photographs x 20 epochs, near the best rates, those with SGD
    ended at 92 to 95 % and those with AdamW at 87 to 92 % (n=9 and 6). Muon at its best rate ended 4.6 and
    5.8 points above SGD and AdamW at theirs on CIFAR-10's images, and within 0.7 points of the better one on
    three other sets, in runs that see 30,000 to 90,000 images (n=2 a rate, benchmarks/results/optimizers.md).
    So an optimizer of timm's, mostly Muon, has 4 of 10 trials in runs that see up to 30,000 images, fewer in
    longer ones, and one in eight in the longest. Nets with attention take AdamW in nearly 7 of 10 trials, and
    an optimizer of timm's in one of eight. LAMB is rare, and LARS, which was made for large batches, is tried
    only from batch 4,096 on. From pretrained weights AdamW has most trials: at its best rate it ended ahead
    of SGD at its own on 9 of 10 sets, by 2.5 points on average (-0.2 to +4.4; n=1 a rate,
    benchmarks/results/tuning-grid.md). In short runs of a segmentation from scratch each at its best rate
    ended, on nuclei and on made shapes, at a mean IoU of 75.8 and 68.6 % with SGD, 78.3 and 70.9 % with
    AdamW, 78.2 and 74.9 % with Muon (n=3 a rate, benchmarks/results/mask-rules.md): there AdamW and timm's
    have 4 of 10 trials each. The shares are ours.
    """,
)
def kinds(facts: Facts, values: Values) -> Distribution:
    weights: dict[Value, float]
    if facts.attention:
        weights = {"sgd": 0.15, "adamw": 0.8 - TIMM, "lamb": 0.05, "timm": TIMM}
        reason = "attention models train better with AdamW"
    elif facts.dense and not facts.pretrained:
        seen = images_seen(facts)
        sgd = log_log_interpolated(seen, (SHORT_RUN, 0.2), (PUBLISHED_RUN, 0.5))
        timm = log_log_interpolated(seen, (SHORT_RUN, SHORT_RUN_TIMM), (PUBLISHED_RUN, TIMM))
        weights = {"sgd": sgd, "adamw": 1.0 - sgd - timm, "timm": timm}
        reason = f"Muon and AdamW in short runs, SGD as often as both in long ones: {seen:,} windows are seen"
    elif facts.pretrained:
        weights = {"sgd": 0.25, "adamw": 0.75 - TIMM, "timm": TIMM}
        reason = "from pretrained weights AdamW ended ahead of SGD on 9 of 10 sets"
    else:
        seen = images_seen(facts)
        sgd = log_log_interpolated(seen, (SHORT_RUN, 0.35), (RUN_ON_IMAGENET, 0.7))
        timm = log_log_interpolated(seen, (SHORT_RUN, SHORT_RUN_TIMM), (RUN_ON_IMAGENET, TIMM))
        weights = {"sgd": sgd, "adamw": 0.95 - sgd - timm, "lamb": 0.05, "timm": timm}
        reason = f"Muon in short runs, SGD for the last accuracy of a long one: {seen:,} images are seen"
    if number_at(values, "loop.batch_size") >= LARS_BATCH:
        weights["lars"] = 0.1
    domain, prior = weighted_choice(weights)
    papers = "arXiv 2110.00476, 2012.12877, 2306.07179"
    return Distribution(domain, prior, reason, f"003:4, 001:136, 002:22, 004:83; {papers}")


def details(facts: Facts, values: Values) -> Rulings:
    """Return the values that the documents give to the fields of a recipe's optimizer."""
    kind = word_at(values, "optimizer.kind", KINDS)
    strong, frozen = strong_augmentation(values), freezes_norm(facts, values)
    common: Rulings = {
        "optimizer.lr": learning_rate(facts, kind, frozen_norm=frozen),
        "optimizer.scaling": scaling(kind),
        "optimizer.weight_decay": weight_decay(facts, kind, strong_augmentation=strong),
    }
    leap: Rulings = {"optimizer.momentum": momentum(facts), "optimizer.nesterov": nesterov(facts)}
    match kind:
        case "sgd":
            return {**common, **leap}
        case "adam_then_sgd":
            decay = weight_decay(facts, "sgd", strong_augmentation=strong)
            rate = learning_rate(facts, "sgd", frozen_norm=frozen)
            return {**common, "optimizer.sgd_lr": rate, **leap, "optimizer.sgd_weight_decay": decay}
        case "rmsprop" | "adam" | "adamw" | "adadelta" | "lars" | "lamb" | "timm":
            return common
        case _:
            assert_never(kind)


# --- the rate -----------------------------------------------------------------------------------------


def scaling(kind: OptimizerKind) -> Ruling[str]:
    """Return how the rate follows the batch."""
    match kind:
        case "sgd":
            reason = "lr grows with the batch"
            return Ruling("linear", reason, "000:25, 003:23; arXiv 1706.02677, section 2.1")
        case "lars":
            return Ruling("linear", "lr grows with the batch, as SGD's", "arXiv 2002.05709, section 2.3")
        case "rmsprop" | "adam" | "adamw" | "lamb" | "adam_then_sgd" | "timm":
            return Ruling("sqrt", "adaptive rates grow with the root of the batch", "arXiv 2205.10287")
        case "adadelta":
            return Ruling("none", "the rate is a factor on steps in the weights' units", "arXiv 1212.5701")
        case _:
            assert_never(kind)


def learning_rate(facts: Facts, kind: OptimizerKind, *, frozen_norm: bool = False) -> Ruling[float]:
    """Return the rate at batch 256.
    If a sweep over rates was made, it lies within what the sweep recommends."""
    rule = _documents_rate(facts, kind, frozen_norm=frozen_norm)
    band = _band(facts, kind)
    if band is None or band[0] <= rule.what <= band[1]:
        return rule
    low, high = band
    clipped = min(max(rule.what, low), high)
    reason = f"{rule.reason}, but {clipped:g} is the nearest that a sweep over rates recommends"
    return Ruling(clipped, reason, f"{rule.source}; {_SWEEP}", unswept=rule.what)


@heuristic(
    "The rate at batch 256 lies around the documents' number, and higher in runs that see few images.",
    """
    From scratch that is 0.1 for SGD and 0.001 for Adam and its variants, and in short runs up to 20 and 50
    times as much, as measured with convolutional nets of 20,000 to 78,000 parameters. SGD's factor falls to 2
    at 10 million (n=1 a rate), and attention models take the plain rate (n=1 a rate). From pretrained weights
    AdamW takes 0.005 and SGD 0.1 for nets of up to 5 million parameters, which fall to 0.0005 and 0.02 at 100
    million, and with attention 0.0001 and 0.01. The documents name 0.001 for SGD on 1,000 images (003:88),
    which scaled to small batches hardly trains: with EfficientNet-Lite0 on 10 sets of 300 to 3,000 images at
    batch 32 the best rates, at 256, were 0.003 to 0.03 for AdamW and 0.08 to 0.24 for SGD (n=1 a rate,
    benchmarks/results/tuning-grid.md). For larger nets the fall is ours. With frozen BatchNorm the rate of a
    classification lies around 0.3 times that (see `model.freeze_norm`). A segmentation has the rates of its
    papers, which are for batches of 16: 0.007 for SGD (arXiv 1706.05587, section 4.1), which is 0.11 at 256,
    and for Adam and its variants 0.004 from scratch and 0.0024 above a pretrained encoder, for which it is a
    tenth (arXiv 2105.15203). In short runs from scratch it is up to 50 times as much for SGD and 10 times for
    the others, and 4 times from pretrained weights: over 12 epochs at batch 8 the best rates at 256 were 3 to
    10 for SGD and 0.01 to 0.1 for AdamW from scratch (n=3 seeds on two sets), and 0.007 to 0.024 for AdamW
    from the weights of EfficientNet-Lite0 below a U-Net, BatchNorm frozen or not (n=1,
    benchmarks/results/mask-rules.md). SGD's rate has high confidence for convolutional nets of up to 100,000
    parameters from scratch: of 70 recipes within a factor 5 of it none ended under 77 % on 4,000
    Fashion-MNIST images (a net of 20,000 parameters), while of 128 uniform draws over five decades 40 % ended
    under 20 %; and on four sets the best of four rates lay within a factor 2 of the rule
    (benchmarks/results/optimizers.md). AdamW's has medium confidence: on two of these sets its best rate was
    0.1, the highest of four, where the rule says 0.03. For the other optimizers the documents name no number.
    Where a sweep over rates was made, the middle of what it recommends is the centre, for the optimizer that
    it was made with. The range reaches a factor of 30 to either side (with frozen BatchNorm 10 below and 100
    above) and holds the documents' own number, so a wrong rule costs some trials and not the search.
    """,
)
def learning_rates(facts: Facts, values: Values, kind: OptimizerKind) -> Distribution:
    plain = _documents_rate(facts, kind)
    rule = _documents_rate(facts, kind, frozen_norm=freezes_norm(facts, values))
    factor = _short_run_factor(facts, kind)
    if (band := _band(facts, kind)) is not None:
        return _rates_of_sweep(band, rounded(rule.what * factor), kind)
    confidence: Confidence = "high" if _is_sure(facts, kind) else "medium"
    domain, _ = around(plain.what * factor, DECADES, confidence)
    least = DOCUMENTS_TUNED_RATE if facts.pretrained and kind == "sgd" else plain.what
    domain = Float(min(domain.low, plain.what, least), domain.high, log=True)  # also the documents' own
    moved = f"; x{factor:.2g} in such a short run" if factor > 1.0 else ""
    prior = Normal(rule.what * factor, confidence)
    return Distribution(domain, prior, f"{rule.reason}{moved}", f"{rule.source}; the factors are ours")


def _is_sure(facts: Facts, kind: OptimizerKind) -> bool:
    """Return whether the rate held on all sets: SGD's, for a small convolutional model from scratch."""
    small = facts.parameters <= SMALL_NET and not facts.attention and not facts.dense
    return kind == "sgd" and small and not facts.pretrained


def _rates_of_sweep(band: tuple[float, float], rule: float, kind: str) -> Distribution:
    low, high = band
    middle = (low * high) ** 0.5
    around_middle, prior = around(middle, DECADES, "high")
    domain = Float(min(around_middle.low, low), max(around_middle.high, high), log=True)
    position = "below" if rule < low else "above" if rule > high else "within"
    reason = f"a sweep recommends {low:g} to {high:g} for {kind}; the rule's {rule:g} lies {position}"
    return Distribution(domain, prior, reason, _SWEEP)


def _band(facts: Facts, kind: OptimizerKind) -> tuple[float, float] | None:
    """Return what a sweep recommends if it was made with this optimizer:
    rates of others differ by decades."""
    return facts.lr_band if kind == (facts.lr_band_kind or optimizer(facts).what) else None


def _documents_rate(facts: Facts, kind: OptimizerKind, *, frozen_norm: bool = False) -> Ruling[float]:
    rule = _rate_from_scratch(kind)
    if facts.dense:
        return mask_rate(facts, kind, rule)
    if not facts.pretrained:
        return rule
    return tuned_rate(facts, kind, rule.what, frozen_norm=frozen_norm)


def _rate_from_scratch(kind: OptimizerKind) -> Ruling[float]:
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


def _short_run_factor(facts: Facts, kind: OptimizerKind) -> float:
    """Return how much larger steps may be, from scratch,
    if a run sees fewer images than 90 epochs of ImageNet.

    The factor is 20 for SGD and 50 for Adam and its variants at 30,000 images: the best rates were about 2
    for SGD and 0.03 to 0.08 for AdamW on 4,000 Fashion-MNIST images x 9 epochs (256 recipes), 1 to 3 and
    0.01 to 0.03 on 1,259 digits x 20 epochs, 3 and 0.03 to 0.1 on 1,442 photographs x 20 epochs, 1 to 3 and
    0.03 to 0.1 on 5,000 CIFAR images x 12 epochs, 1.3 to 4 and 0.03 to 0.06 on 10,000 Fashion-MNIST images x
    9 epochs (n=1 or 2 a rate), with convolutional nets of 20,000 to 78,000 parameters. The 0.2 at batch 256
    for CIFAR's 8 million images, with nets of up to 2 million parameters (1512.03385, section 4.2), lies in
    between.

    SGD's factor falls to 2 at 10 million parameters: on 1,259 digits x 4 epochs a ResNet18 of 11 million
    ended at 49.4 % with SGD at 2, at 98.5 % at 0.2; AdamW at 0.05 ended at 98.1 % (n=1 each), so the factor
    of Adam and its variants does not fall. Attention has no factor: a ViT-Tiny on 1,259 digits x 5 epochs
    with AdamW stayed at chance at 0.05, and ended at 46.5 % at 0.01, at 75.8 % at 0.002 (n=1 a rate).
    Adadelta finds its step itself.
    """
    match kind:
        case _ if facts.dense:
            return mask_short_run_factor(facts, kind)
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


# --- momentum and decay -------------------------------------------------------------------------------


def momentum(facts: Facts) -> Ruling[float]:
    """Return SGD's momentum."""
    return Ruling(0.9, "SGD with momentum; 0.9 is the papers' value", "003:4; arXiv 1706.02677, section 5.1")


@heuristic(
    "SGD's momentum lies around 0.9, the papers' value.",
    """
    The effect of a rate grows as 1 / (1 - momentum): over this range, which is ours, it is half to five
    times the effect at 0.9. A 1cycle schedule moves the momentum itself, and leaves this value unused.
    """,
)
def momenta(facts: Facts, values: Values) -> Distribution:
    reason = "0.9 is the papers' value; a rate's effect grows as 1 / (1 - momentum)"
    source = "003:4; arXiv 1706.02677, section 5.1; the range is ours"
    return Distribution(Float(0.8, 0.98), Normal(0.9, "medium"), reason, source)


def nesterov(facts: Facts) -> Ruling[bool]:
    """Return whether SGD's momentum is Nesterov's."""
    return Ruling(True, "looks ahead along the momentum", "arXiv 1706.02677, section 5.1")


def weight_decay(facts: Facts, kind: OptimizerKind, *, strong_augmentation: bool = False) -> Ruling[float]:
    """Return the decay: SGD's follows model, data and augmentation; L2 under a division is small.

    An L2 decay is part of the gradient, which Adam and its variants divide by its own size: weights with
    large gradients then hardly decay (arXiv 1711.05101, section 2).
    """
    match kind:
        case _ if facts.dense:
            return mask_decay(kind)
        case "sgd" | "lars":
            return _sgd_decay(facts, strong_augmentation=strong_augmentation)
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


@heuristic(
    "SGD's weight decay follows the model's size, the number of images and the augmentation drawn.",
    """
    It is 1e-4 at ResNet50 size and 3e-5 for small nets (the documents' table: +1.04 points against 1e-4 on
    MobileNetV1 x0.25), x0.7 with strong augmentation (+0.39 points), more for fewer images by a fourth root
    that is ours. Decoupled decay is some hundred times larger, as it is multiplied by a smaller rate: around
    0.02, and 0.05 with attention. Only papers give these values, so the confidence is low.
    """,
)
def weight_decays(facts: Facts, values: Values, kind: OptimizerKind) -> Distribution:
    strong = strong_augmentation(values)
    rule = weight_decay(facts, kind, strong_augmentation=strong)
    domain, _ = around(weight_decay(facts, kind).what, DECADES, "medium")
    confidence: Confidence = "medium" if kind in ("sgd", "lars") else "low"
    return Distribution(domain, Normal(rule.what, confidence), rule.reason, rule.source)


def strong_augmentation(values: Values) -> bool:
    """Return whether a policy distorts images or they are mixed:
    a harder task, which needs less decay (003:33)."""
    return any(values[f"augmentation.{part}.kind"] != "none" for part in ("policy", "mixing"))


def _sgd_decay(facts: Facts, *, strong_augmentation: bool) -> Ruling[float]:
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
