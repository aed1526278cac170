"""The rules of a segmentation, where they are other than those of one label an image.

Rates are at batch 256, and published ones at batch 16: SGD's is linear in the batch, that of Adam and its
variants grows with its root. Sources such as `000:49` are lines of the training tricks notes
(docs/sources.md). What was measured stands in docs/rules/masks.md and docs/rules/learning-rate.md.
"""

from __future__ import annotations

import math

from spaces.domains import Float, Value, Values
from spaces.facts import Backbone, Facts
from spaces.priors import Normal
from spaces.rules import imbalance, rates
from spaces.rules.augmentations import maskings_in, policies_in
from spaces.rules.finetuning import has_norm
from spaces.rules.loops import STEPS_A_RUN, STEPS_AN_EPOCH
from spaces.rules.rates import TIMM, OptimizerKind
from spaces.rules.rulings import (
    LONG,
    LONG_ENOUGH,
    MILLION,
    SHORT_RUN,
    Distribution,
    Ruling,
    Rulings,
    Threshold,
    epochs_for_augmentation,
    heuristic,
    images_seen,
    log_log_interpolated,
    long_enough,
    short_of,
    weighted_choice,
)
from trainable.recipe.tasks import LARGEST_WINDOW, window_side

PUBLISHED_RUN = 480_000  # windows that DeepLabv3 saw: 30,000 steps of 16 (arXiv 1706.05587, section 4.1)
LARGEST_OF_UNET_SMALL = 128  # shorter side in pixels: up to this `unet_small` learns images from scratch
NOT_IN_CLASSIFICATION = "in a classification"
MEASURED = "measured: benchmarks/results/mask-rules.md"
TRICKS = "benchmarks/results/segmentation-tricks.md"
BOTH_MEASURED = f"{MEASURED}, {TRICKS}"  # runs from scratch, and with those from pretrained weights


# --- the network, and what it sees --------------------------------------------------------------------


def model(backbone: Backbone) -> dict[str, str]:
    """Return the section `model` of a search that names no network and starts from this one: smp's U-Net
    answers for every pixel and takes images of every size."""
    return {"kind": "smp", "name": "unet", "encoder": backbone.name, "weights": backbone.weights}


def network(facts: Facts) -> Rulings:
    """Return what is frozen and slowed of a pretrained encoder, and the side of the windows."""
    rates_of_layers: Rulings = {}
    if facts.pretrained:  # the backbone has a lower rate than what is new above it
        rates_of_layers = {"model.layer_rates.kind": Ruling("backbone", _NEW_ABOVE, _BACKBONE)}
    return {**_frozen_norm(facts), **rates_of_layers, **window(facts)}


def window(facts: Facts) -> Rulings:
    """Return the side of the windows that are trained on, where it is the one that was measured.

    From 321 to 513 px the documents gained some 10 %, up to the image's own size (000:49). The device bounds
    it: a window of twice the side takes four times as long.
    """
    if facts.longer_side is None:
        return {}
    gpu = facts.gpus > 0
    side = window_side(facts.longer_side, gpu=gpu)
    if side != facts.image_size:
        return {}
    reason = (
        f"as large as most images, {facts.longer_side} px, at most {LARGEST_WINDOW[gpu]} px on a "
        f"{'GPU' if gpu else 'CPU'}: larger windows gained some 10 %"
    )
    return {"data.image_size": Ruling(side, reason, "000:49; arXiv 1706.05587, section 4.1")}


FROZEN_NORM = 0.15  # the share of the trials in which BatchNorm is frozen


def _frozen_norm(facts: Facts) -> Rulings:
    if not has_norm(facts):
        return {}
    reason = "frozen BatchNorm gained 1.3 % in the documents' segmentation, and lost in short runs here"
    return {"model.freeze_norm": Ruling(True, reason, f"000:51; measured: {TRICKS}")}


@heuristic(
    "BatchNorm is frozen in 3 of 20 trials of a segmentation.",
    page="masks.md",
    silent="for a model without pretrained weights or without BatchNorm, or with attention",
)
def frozen_norms(facts: Facts, values: Values) -> Distribution | None:
    if not has_norm(facts):
        return None
    domain, prior = weighted_choice({False: 1.0 - FROZEN_NORM, True: FROZEN_NORM})
    reason = "the documents gained 1.3 % in segmentation, and short runs here lost"
    return Distribution(domain, prior, reason, f"000:51; measured: {TRICKS}; the shares are ours")


_NEW_ABOVE = "the layers above the backbone are new, and have ten times its rate"
_BACKBONE = "arXiv 1606.00915, section 4.1; 2105.15203"


def backbone_factor() -> Ruling[float]:
    """Return the backbone's rate over that of what is new above it."""
    return Ruling(0.1, _NEW_ABOVE, _BACKBONE)


@heuristic(
    "The backbone of a segmentation has a rate of its own in 4 of 10 trials; one rate is for all in as many.",
    page="masks.md",
    silent="for a model without pretrained weights",
)
def layer_rates(facts: Facts, values: Values) -> Distribution | None:
    if not facts.pretrained:
        return None
    domain, prior = weighted_choice({"backbone": 0.4, "uniform": 0.4, "geometric": 0.2})
    return Distribution(domain, prior, _NEW_ABOVE, f"{_BACKBONE}; measured: {TRICKS}; the shares are ours")


@heuristic(
    "In a segmentation the pretrained backbone's rate is around a tenth of that of the layers above it.",
    page="masks.md",
    silent=f"for a model without pretrained weights, and {NOT_IN_CLASSIFICATION}",
)
def backbone_factors(facts: Facts, values: Values) -> Distribution | None:
    if not facts.pretrained:
        return None
    rule = backbone_factor()
    domain, prior = Float(0.01, 1.0, log=True), Normal(rule.what, "medium")
    return Distribution(domain, prior, rule.reason, rule.source)


@heuristic(
    "Where you ask, a DeepLabv3+ answers for each 16 pixels in 3 of 4 trials, and for each 8 in the others.",
    page="masks.md",
    silent="for other networks, which have no such field",
)
def output_strides(facts: Facts, values: Values) -> Distribution | None:
    if not _is_dilated(values):
        return None
    domain, prior = weighted_choice({16: 0.75, 8: 0.25})
    reason = "8 is more accurate than 16, and takes a multiple of the time"
    return Distribution(domain, prior, reason, "arXiv 1706.05587, 1802.02611; the shares are ours")


def output_stride(facts: Facts, values: Values) -> Rulings:
    """Return how finely a DeepLabv3+ looks in the documented recipe."""
    if not _is_dilated(values):
        return {}
    reason = "16 in training, which is far quicker than 8"
    return {"model.output_stride": Ruling(16, reason, "arXiv 1706.05587, section 4.1")}


def _is_dilated(values: Values) -> bool:
    return values.get("model.kind") == "smp" and values.get("model.name") == "deeplabv3plus"


# --- optimizer, rate and decay ------------------------------------------------------------------------

USUAL_BATCH = 16
PUBLISHED_SGD_RATE = 0.11  # 0.007 at batch 16 (arXiv 1706.05587, section 4.1)
ADAM_RATE = 0.004  # Adam's default, 0.001, at batch 16
# 0.0006 at batch 16, ten times that of the encoder (arXiv 2105.15203, section 4.1, and its code)
TUNED_ADAPTIVE_RATE = 0.0024
SHORT_RUN_FACTOR, ADAPTIVE_SHORT_RUN_FACTOR = 50.0, 10.0
LARGE_NET_SHORT_RUN_FACTOR = 2.0
TUNED_SHORT_RUN_FACTOR = 6.0  # from pretrained weights: measured with AdamW, and ours for the others
# In parameters: rates were measured with a net of about the first size; the second, and SGD's factor there,
# are those of a classification
SMALL_NET, LARGE_NET = 100_000, 10 * MILLION


def optimizer(facts: Facts) -> Ruling[str]:
    """Return which optimizer the documented recipe uses."""
    if facts.attention:
        return rates.of_attention()
    reason = "at its best rate AdamW ended ahead of SGD in short runs, and SegFormer has it"
    return Ruling("adamw", reason, f"{MEASURED}; arXiv 2105.15203, section 4.1")


def optimizers(facts: Facts) -> tuple[dict[Value, float], str]:
    """Return the shares of optimizers in runs from scratch of nets without attention, and the reason."""
    seen = images_seen(facts)
    sgd = log_log_interpolated(seen, (SHORT_RUN, 0.2), (PUBLISHED_RUN, 0.5))
    timm = log_log_interpolated(seen, (SHORT_RUN, rates.SHORT_RUN_TIMM), (PUBLISHED_RUN, TIMM))
    reason = f"Muon and AdamW in short runs, SGD as often as both in long ones: {seen:,} windows are seen"
    return {"sgd": sgd, "adamw": 1.0 - sgd - timm, "timm": timm}, reason


def rate(facts: Facts, kind: OptimizerKind, frozen_norm: bool) -> Ruling[float]:
    """Return the rate of the layers above the backbone.

    It is not lower with frozen BatchNorm: those of the decoder are not frozen.
    """
    match kind:
        case "adadelta":
            return rates.rate_from_scratch(kind)
        case "sgd" | "lars" if facts.attention:
            reason = "transformers are tuned at lower rates"
            return Ruling(0.01, reason, "arXiv 2106.10270; the number is ours")
        case "sgd" | "lars":
            reason = f"0.007 at batch {USUAL_BATCH} is {PUBLISHED_SGD_RATE:g} at 256"
            return Ruling(PUBLISHED_SGD_RATE, reason, "arXiv 1706.05587, section 4.1")
        case _ if facts.pretrained:
            reason = (
                f"0.00006 at batch {USUAL_BATCH} for the encoder, ten times that above it, is "
                f"{TUNED_ADAPTIVE_RATE:g} at 256"
            )
            return Ruling(TUNED_ADAPTIVE_RATE, reason, "arXiv 2105.15203, section 4.1")
        case _ if facts.attention:
            return rates.rate_from_scratch(kind)
        case _:
            reason = f"Adam's own default at batch {USUAL_BATCH}, {ADAM_RATE:g} at 256"
            return Ruling(ADAM_RATE, reason, "arXiv 1412.6980, section 2; the batch is ours")


def short_run_factor(facts: Facts, kind: OptimizerKind) -> float:
    """Return how much larger steps may be if a run sees fewer windows than DeepLabv3's.

    Attention has no factor, as in a classification (docs/rules/learning-rate.md#segmentation).
    """
    match kind:
        case _ if facts.attention:
            return 1.0
        case "adadelta":
            return 1.0
        case _ if facts.pretrained:
            most = TUNED_SHORT_RUN_FACTOR
        case "sgd" | "lars":
            small, large = (SMALL_NET, SHORT_RUN_FACTOR), (LARGE_NET, LARGE_NET_SHORT_RUN_FACTOR)
            most = log_log_interpolated(facts.parameters, small, large)
        case _:
            most = ADAPTIVE_SHORT_RUN_FACTOR
    return log_log_interpolated(images_seen(facts), (SHORT_RUN, most), (PUBLISHED_RUN, 1.0))


def rate_is_sure(facts: Facts, kind: OptimizerKind) -> bool:
    """Return False: no rate was measured on many sets."""
    return False


def weight_decay(facts: Facts, kind: OptimizerKind, strong_augmentation: bool) -> Ruling[float]:
    """Return the weight decay, which does not follow the number of images: their pixels are many labels."""
    match kind:
        case "sgd" | "lars":
            return Ruling(1e-4, "as DeepLabv3's", "arXiv 1706.05587, section 4.1 and its code")
        case "adamw" | "adam_then_sgd" | "timm" | "lamb":
            return Ruling(
                0.01, "decoupled decay, as SegFormer's", "arXiv 2105.15203, section 4.1 and its code"
            )
        case _:
            reason = "L2 decay, which division by the gradient's size distorts: small"
            return Ruling(1e-5, reason, "arXiv 1905.02244, section 6.1; 1711.05101, section 2")


# --- schedule, batch and length -----------------------------------------------------------------------

_POLY = "arXiv 1606.00915, section 4.1; 1706.05587, section 4.1"
_USUAL = "what segmentations are trained with since DeepLab"
POWER = Ruling(0.9, _USUAL, _POLY)
LARGEST_BATCH, SMALLEST_BATCH = 16, 4  # images are large


def schedule(facts: Facts) -> Ruling[str]:
    """Return the shape of the rate over the run in the documented recipe."""
    return Ruling("poly", f"{_USUAL}, with a power of {POWER.what:g}", _POLY)


@heuristic(
    "Where you ask, the rate of a segmentation follows a polynomial in half of the trials, and a cosine in a "
    "third.",
    page="masks.md",
)
def schedules(facts: Facts, values: Values) -> Distribution:
    domain, prior = weighted_choice({"poly": 0.5, "cosine": 0.35, "onecycle": 0.1, "step": 0.05})
    return Distribution(domain, prior, _USUAL, f"{_POLY}; 000:27, 000:55; the shares are ours")


def batch_size(facts: Facts) -> Ruling[int]:
    """Return a batch of few large images: 16 as in most papers, fewer where a run would have few steps
    (docs/rules/batch.md)."""
    epoch, run = facts.train_images // STEPS_AN_EPOCH, facts.train_images * facts.epochs // STEPS_A_RUN
    cap = min(LARGEST_BATCH, max(SMALLEST_BATCH, min(epoch, run)), facts.train_images)
    reason = (
        f"a power of two, at most the papers' {LARGEST_BATCH}, for {STEPS_AN_EPOCH} steps an epoch and "
        f"{STEPS_A_RUN} a run of {facts.train_images:,} images x {facts.epochs} epochs; at least "
        f"{SMALLEST_BATCH}"
    )
    return Ruling(2 ** int(math.log2(cap)), reason, "arXiv 1706.05587, section 4.1; 2105.15203; measured")


def wanted_epochs(facts: Facts) -> Ruling[int]:
    """Return how long the documents would train: until as many windows are seen as DeepLabv3 saw."""
    reason = (
        f"DeepLabv3 saw {PUBLISHED_RUN:,} windows; the budget of {facts.epochs} epochs shows "
        f"{images_seen(facts):,}"
    )
    return Ruling(max(1, round(PUBLISHED_RUN / facts.train_images)), reason, "arXiv 1706.05587, section 4.1")


# --- the loss -----------------------------------------------------------------------------------------


def label_smoothing(facts: Facts) -> Ruling[float]:
    """Leave labels whole."""
    reason = (
        "segmentations are trained with whole labels; 0.1 changed little on one set and gained on another"
    )
    return Ruling(0.0, reason, "arXiv 1706.05587, 2105.15203; measured: benchmarks/results/mask-rules.md")


def corrections(facts: Facts) -> Rulings:
    """Leave unequal classes uncorrected in the first trial."""
    return {}


@heuristic(
    "Pixels of small classes count more in 1 of 10 trials where the score counts classes alike.",
    page="masks.md",
    silent=imbalance.SILENT,
)
def class_weights(facts: Facts, values: Values) -> Distribution | Threshold | None:
    if not imbalance.corrected(facts):
        return imbalance.not_unequal_enough(facts)
    domain, prior = weighted_choice({"none": 0.9, "inverse": 0.1})
    source = f"arXiv 1411.4734, 1511.00561; {MEASURED}; the shares are ours"
    return Distribution(domain, prior, imbalance.ratio_of_classes(facts, "pixels"), source)


_ALONE = Ruling[Value](0.0, "cross-entropy alone is the papers' usual loss", "arXiv 1411.4038, section 3")
LOSSES: Rulings = {
    "task.loss.dice": _ALONE,
    "task.loss.lovasz": _ALONE,
    "task.loss.resolution": Ruling("labels", "answers are enlarged to the mask: +1.3 %", "000:50"),
}


@heuristic(
    "Dice weighs as much as the cross-entropy in half of the trials, and nothing in 3 of 10.",
    page="masks.md",
    silent=NOT_IN_CLASSIFICATION,
)
def dices(facts: Facts, values: Values) -> Distribution:
    domain, prior = weighted_choice({0.0: 0.3, 0.5: 0.2, 1.0: 0.5})
    reason = "it counts a class as much as another, as the mean IoU does"
    return Distribution(
        domain, prior, reason, f"arXiv 1606.04797, 1809.10486; {BOTH_MEASURED}; the shares are ours"
    )


@heuristic(
    "The Lovasz-Softmax loss is added in a quarter of the trials.",
    page="masks.md",
    silent=NOT_IN_CLASSIFICATION,
)
def lovaszes(facts: Facts, values: Values) -> Distribution:
    domain, prior = weighted_choice({0.0: 0.75, 1.0: 0.25})
    reason = "a bound of 1 - IoU, which sorts all pixels"
    return Distribution(domain, prior, reason, f"arXiv 1705.08790; {BOTH_MEASURED}; the shares are ours")


# --- augmentation -------------------------------------------------------------------------------------

LEAST_SCALE, LARGEST_SCALE = 0.5, 2.0
NEAR_LEAST_SCALE, NEAR_LARGEST_SCALE = 0.8, 1.25  # were better in short runs of a net of 0.12 M parameters
SCALED = "arXiv 1706.05587, section 4.1"


def crop_kind(facts: Facts) -> Ruling[str]:
    """Return the windows of the documented recipe; as they are in short runs."""
    if not long_enough(facts):
        reason = (
            f"a run of under {LONG_ENOUGH} epochs learns better from windows as they are; the limit is ours"
        )
        return Ruling("none", reason, MEASURED)
    reason = f"images are scaled by {LEAST_SCALE:g} to {LARGEST_SCALE:g} before a window is cut out"
    return Ruling("scaled", reason, SCALED)


def scales() -> Rulings:
    """Return the least and the largest factor of an image's size."""
    reason = "usual in segmentation"
    found = {"scale_min": LEAST_SCALE, "scale_max": LARGEST_SCALE}
    return {f"augmentation.crop.{name}": Ruling(each, reason, SCALED) for name, each in found.items()}


@heuristic(
    "Images with masks are scaled before a window is cut out, in half of the trials of a short run and in "
    "most of a long one.",
    page="masks.md",
    silent=NOT_IN_CLASSIFICATION,
)
def crop_kinds(facts: Facts, values: Values) -> Distribution:
    seen = images_seen(facts)
    scaled = log_log_interpolated(seen, (SHORT_RUN, 0.5), (PUBLISHED_RUN, 0.8))
    rest = 1.0 - scaled
    domain, prior = weighted_choice({"none": 0.7 * rest, "pad": 0.3 * rest, "scaled": scaled})
    reason = f"other scales help in long runs, near ones in short ones: {seen:,} windows are seen"
    return Distribution(domain, prior, reason, f"{SCALED}; {BOTH_MEASURED}; the shares are ours")


@heuristic(
    "The least factor of an image's size is around 0.5 in long runs, and around 0.8 in short ones.",
    page="masks.md",
    silent=NOT_IN_CLASSIFICATION,
)
def scale_mins(facts: Facts, values: Values) -> Distribution:
    centre = log_log_interpolated(
        images_seen(facts), (SHORT_RUN, NEAR_LEAST_SCALE), (PUBLISHED_RUN, LEAST_SCALE)
    )
    reason = f"{LEAST_SCALE:g} in long runs, nearer to 1 in short ones"
    return Distribution(Float(0.25, 1.0, log=True), Normal(centre, "medium"), reason, f"{SCALED}; {MEASURED}")


@heuristic(
    "The largest factor of an image's size is around 2 in long runs, and around 1.25 in short ones.",
    page="masks.md",
    silent=NOT_IN_CLASSIFICATION,
)
def scale_maxima(facts: Facts, values: Values) -> Distribution:
    centre = log_log_interpolated(
        images_seen(facts), (SHORT_RUN, NEAR_LARGEST_SCALE), (PUBLISHED_RUN, LARGEST_SCALE)
    )
    reason = f"{LARGEST_SCALE:g} in long runs, nearer to 1 in short ones"
    return Distribution(Float(1.0, 4.0, log=True), Normal(centre, "medium"), reason, f"{SCALED}; {MEASURED}")


@heuristic(
    "In a segmentation a policy of distortions is used half as often.",
    page="masks.md",
    silent="in runs of under 10 epochs, and under 24 px, where the operations destroy the object",
)
def policies(facts: Facts, values: Values) -> Distribution | Threshold | None:
    return policies_in(facts, 0.5)


@heuristic(
    "In a segmentation a part of the image is hidden a fifth as often.",
    page="masks.md",
    silent=(
        "in runs of under 10 epochs, under 24 px, and for nets under 1.5 million parameters, which "
        "underfit already"
    ),
)
def maskings(facts: Facts, values: Values) -> Distribution | Threshold | None:
    return maskings_in(facts, 0.2)


@heuristic(
    "Images with masks are mixed in 1 of 20 trials of a run of 10 epochs, and in 3 of 10 from 100 on.",
    page="masks.md",
    silent=f"in runs of under 10 epochs, and {NOT_IN_CLASSIFICATION}",
)
def mixings(facts: Facts, values: Values) -> Distribution | Threshold | None:
    if (short := short_of(epochs_for_augmentation(facts))) is not None:
        return short
    on = log_log_interpolated(facts.epochs, (LONG_ENOUGH, 0.05), (LONG, 0.3))
    weights: dict[Value, float] = {"none": 1.0 - on, "cutmix": 0.5 * on, "classmix": 0.5 * on}
    domain, prior = weighted_choice(weights)
    reason = f"made for images without labels, so they are rare: {facts.epochs} epochs here"
    return Distribution(
        domain, prior, reason, f"arXiv 1906.01916, 2007.07936; {BOTH_MEASURED}; the shares are ours"
    )
