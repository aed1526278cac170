"""The documents' rules for random changes of images, by image size, model size and length of the run.

Sources such as `003:62-67` are lines of the guides in docs/sources.md: 000 is the training tricks notes and
003 the PaddleClas guide.
"""

from __future__ import annotations

from spaces.domains import Float, Integer, Value, Values
from spaces.facts import Facts
from spaces.priors import Normal
from spaces.rules.rulings import (
    IMAGENET_IMAGES,
    LONG,
    LONG_ENOUGH,
    LONG_RUN,
    MILLION,
    SHORT_RUN,
    Distribution,
    Ruling,
    Threshold,
    epochs_for_augmentation,
    heuristic,
    images_seen,
    log_log_interpolated,
    long_enough,
    rounded,
    short_of,
    size_of,
    weighted_choice,
)

SMALLEST_SHIFTED_SIDE = 16
LARGEST_PADDED_SIDE = 64
NEAR_SHIFT = 1.5 / 32
SMALLEST_POLICY_SIDE = 24
MIXED_NET = 10 * MILLION
# MobileNetV2 x0.25, with which the documents measured that strong crops make a net underfit (003:62-67)
VERY_SMALL_NET = 1.5 * MILLION


def crop_kind(facts: Facts) -> Ruling[str]:
    """Return which random crop suits the images' size; none in short runs."""
    side = facts.image_size
    if not long_enough(facts):
        reason = f"a run of under {LONG_ENOUGH} epochs underfits with it; the limit is ours"
        return Ruling("none", reason, "003:62, 003:84")
    if side < SMALLEST_SHIFTED_SIDE:
        reason = f"at {side} px, under {SMALLEST_SHIFTED_SIDE}, one pixel of shift cuts into the object"
        return Ruling("none", f"{reason}; the limit is ours", "003:62, 003:84")
    if side <= LARGEST_PADDED_SIDE:
        reason = f"small images ({side} px, up to {LARGEST_PADDED_SIDE}) are shifted, not rescaled"
        return Ruling("pad", reason, "arXiv 1512.03385, section 4.2")
    return Ruling("resized", f"ImageNet's random crop, for {side} px", "003:62; arXiv 1409.4842")


def crop_fraction(facts: Facts) -> Ruling[float]:
    """Return how far a padded crop shifts, as a share of the side."""
    return Ruling(0.125, "4 of 32 px", "arXiv 1512.03385, section 4.2")


@heuristic(
    "Small images are shifted in 6 of 10 trials that see 30,000 images, and in 8 of 10 from 3 million.",
    page="augmentation.md",
    silent=(
        "in runs of under 10 epochs and under 16 px, which go without by rule, above 64 px, which get "
        "ImageNet's crop, and in a segmentation"
    ),
)
def crop_kinds(facts: Facts, values: Values) -> Distribution | None:
    if crop_kind(facts).what != "pad":
        return None
    seen = images_seen(facts)
    shifted = log_log_interpolated(seen, (SHORT_RUN, 0.6), (LONG_RUN, 0.8))
    domain, prior = weighted_choice({"none": 1.0 - shifted, "pad": shifted})
    reason = f"near shifts help in short runs, far ones in long runs: {seen:,} images are seen"
    return Distribution(domain, prior, reason, "003:62, 003:84; arXiv 1512.03385, section 4.2; measured")


@heuristic(
    "A padded crop shifts by around 4 of 32 pixels in long runs, as usual on CIFAR; by less in short ones.",
    page="augmentation.md",
)
def crop_fractions(facts: Facts, values: Values) -> Distribution:
    side = facts.image_size
    low, high = 1.0 / side, max(2.0 / side, 0.25)
    far = crop_fraction(facts).what
    usual = log_log_interpolated(images_seen(facts), (SHORT_RUN, NEAR_SHIFT), (LONG_RUN, far))
    domain, prior = Float(low, high, log=True), Normal(min(max(usual, low), high), "medium")
    reason = f"about {usual * side:.2g} px of {side}; 4 of 32 in long runs"
    return Distribution(domain, prior, reason, "arXiv 1512.03385, section 4.2; the 1.5 px are ours")


def crop_scale(facts: Facts) -> Ruling[float]:
    """Return the least area of a crop. 0.2 for very small nets gained 0.83 points over 0.08; 0.35 to
    fine-tune is ours."""
    if facts.pretrained:
        return Ruling(0.35, "pretrained weights have learnt whole objects; 0.35 is ours", "003:62, 003:84")
    scale = rounded(log_log_interpolated(facts.parameters, (3 * MILLION, 0.2), (6 * MILLION, 0.08)))
    reason = f"0.08 as usual, 0.2 for very small nets (+0.83 points); this is {size_of(facts)}"
    return Ruling(scale, reason, "003:62-67")


@heuristic(
    "The least area of a random crop is around 0.08 as usual, and 0.2 for nets of up to 3 M parameters.",
    page="augmentation.md",
    silent="in a segmentation, whose windows have factors of the image's size",
)
def crop_scales(facts: Facts, values: Values) -> Distribution:
    rule = crop_scale(facts)
    return Distribution(Float(0.08, 0.8, log=True), Normal(rule.what, "medium"), rule.reason, rule.source)


def crop_ratio(facts: Facts) -> Ruling[float] | None:
    """Return the narrowest crop, width over height, of a very small net: 0.9 up to 1.5 M parameters.

    The documents would narrow the range for such nets (003:62), without a number. PaddlePaddle's own scripts
    take 1 for MobileNetV2 x0.25 and 0.8 for ShuffleNetV2 x0.25. 0.9 is ours, and from 6 M the usual 3/4
    holds. It is a value and not a range, since the widest crop must be its reciprocal.
    """
    ratio = rounded(log_log_interpolated(facts.parameters, (VERY_SMALL_NET, 0.9), (6 * MILLION, 0.75)))
    if ratio <= 0.75 or facts.pretrained:
        return None
    return Ruling(
        ratio, f"very small nets tolerate little distortion; this is {size_of(facts)}", "003:62; ours"
    )


def flip_probability(facts: Facts) -> Ruling[float]:
    """Return how often each allowed flip is done."""
    allowed = ", ".join(facts.flips) or "none here"
    return Ruling(0.5, f"for the flips under which a label survives: {allowed}", "000:22, 003:70")


def _side_for_policies(facts: Facts) -> Threshold:
    return Threshold("side of an image in px", facts.image_size, SMALLEST_POLICY_SIDE)


def policy(facts: Facts) -> Ruling[str]:
    """Return which policy of distortions the first trial uses."""
    return Ruling("none", "the standard transforms are crop and flip alone", "003:70-74")


@heuristic(
    "A policy of distortions is used in 3 of 10 trials of a run of 10 epochs, and in 7 of 10 from 100 on.",
    page="augmentation.md",
    silent="in runs of under 10 epochs, and under 24 px, where the operations destroy the object",
)
def policies(facts: Facts, values: Values) -> Distribution | Threshold | None:
    return policies_in(facts, 1.0)


def policies_in(facts: Facts, times: float) -> Distribution | Threshold | None:
    """Return the policies that are tried, `times` as often as in a classification."""
    if (short := short_of(epochs_for_augmentation(facts), _side_for_policies(facts))) is not None:
        return short
    on = log_log_interpolated(facts.epochs, (LONG_ENOUGH, 0.3), (LONG, 0.7)) * _borne(facts) * _fitted(facts)
    on *= times
    kinds = {"trivialaugment": 0.3, "randaugment": 0.25, "autoaugment": 0.15}
    domain, prior = weighted_choice(
        {"none": 1.0 - on} | {kind: on * each / 0.7 for kind, each in kinds.items()}
    )
    reason = f"+0.39 to +0.64 points over 300 epochs; {facts.epochs} epochs and {size_of(facts)} here"
    return Distribution(domain, prior, reason, "003:70-80; arXiv 1805.09501, 1909.13719, 2103.10158")


@heuristic(
    "RandAugment's strength is around 9 of 30 at ResNet50 size, as in the paper, and 5 for very small nets.",
    page="augmentation.md",
)
def magnitudes(facts: Facts, values: Values) -> Distribution:
    centre = log_log_interpolated(facts.parameters, (VERY_SMALL_NET, 5.0), (25 * MILLION, 9.0))
    reason = f"9 at ResNet50 size, less for smaller nets; this is {size_of(facts)}"
    source = "003:62, 003:80; arXiv 1909.13719, section 4.1"
    return Distribution(Integer(1, 20), Normal(centre, "medium"), reason, source)


def masking(facts: Facts) -> Ruling[str]:
    """Return how the first trial hides parts of the images."""
    return Ruling("none", "the standard transforms are crop and flip alone", "003:70-74")


@heuristic(
    "A part of the image is hidden in 2 of 10 trials of a run of 10 epochs, and in half from 100 on.",
    page="augmentation.md",
    silent=(
        "in runs of under 10 epochs, under 24 px, and for nets under 1.5 million parameters, which "
        "underfit already"
    ),
)
def maskings(facts: Facts, values: Values) -> Distribution | Threshold | None:
    return maskings_in(facts, 1.0)


def maskings_in(facts: Facts, times: float) -> Distribution | Threshold | None:
    """Return how parts are hidden, `times` as often as in a classification."""
    millions = Threshold("million parameters", facts.parameters / MILLION, VERY_SMALL_NET / MILLION)
    short = short_of(epochs_for_augmentation(facts), _side_for_policies(facts), millions)
    if short is not None:
        return short
    on = log_log_interpolated(facts.epochs, (LONG_ENOUGH, 0.2), (LONG, 0.5)) * _borne(facts) * _fitted(facts)
    on *= times
    kinds = {"erasing": 0.25, "cutout": 0.1, "gridmask": 0.1, "hide_and_seek": 0.05}
    domain, prior = weighted_choice(
        {"none": 1.0 - on} | {kind: on * each / 0.5 for kind, each in kinds.items()}
    )
    reason = f"+0.12 to +0.70 points over 300 epochs; {facts.epochs} epochs and {size_of(facts)} here"
    return Distribution(domain, prior, reason, "003:70-82; arXiv 1708.04896, 1708.04552, 2001.04086")


def erasing_probability(facts: Facts) -> Ruling[float]:
    """Return the share of images that lose a rectangle, if erasing is used."""
    return Ruling(0.5, "the paper erases half of the images", "003:81; arXiv 1708.04896")


@heuristic(
    "The share of images that lose a rectangle is around half at ResNet50 size, as in the paper.",
    page="augmentation.md",
)
def erasing_probabilities(facts: Facts, values: Values) -> Distribution:
    centre = log_log_interpolated(facts.parameters, (VERY_SMALL_NET, 0.25), (25 * MILLION, 0.5))
    reason = f"the paper erases half of the images, smaller nets tolerate less; this is {size_of(facts)}"
    return Distribution(Float(0.1, 0.8), Normal(centre, "medium"), reason, "003:81; arXiv 1708.04896")


def mixing(facts: Facts) -> Ruling[str]:
    """Return how the first trial mixes images."""
    return Ruling("none", "the standard transforms are crop and flip alone", "003:70-74")


@heuristic(
    "Images are mixed in 7 of 10 trials at ResNet50 size; under 10 M parameters in 3 of 10, by mixup only.",
    page="augmentation.md",
    silent="in runs of under 10 epochs, and in a segmentation",
)
def mixings(facts: Facts, values: Values) -> Distribution | Threshold | None:
    if (short := short_of(epochs_for_augmentation(facts))) is not None:
        return short
    on = log_log_interpolated(facts.epochs, (LONG_ENOUGH, 0.4), (LONG, 1.0))
    cutmix = on * log_log_interpolated(facts.parameters, (MIXED_NET, 0.05), (25 * MILLION, 0.4))
    mixup = on * log_log_interpolated(facts.parameters, (MIXED_NET, 0.25), (25 * MILLION, 0.3))
    weights: dict[Value, float] = {"none": 1.0 - cutmix - mixup, "mixup": mixup, "cutmix": cutmix}
    if facts.parameters < MIXED_NET:
        weights = {"none": 1.0 - cutmix - mixup, "mixup": mixup + cutmix}
    domain, prior = weighted_choice(weights)
    reason = f"+0.97 to +1.08 points over 300 epochs; {facts.epochs} epochs and {size_of(facts)} here"
    return Distribution(domain, prior, reason, "003:70-77; arXiv 1710.09412, 1905.04899")


@heuristic(
    "Mixup's strength is around 0.2 for a million images and 1 for CIFAR's 50,000, as in the paper.",
    page="augmentation.md",
    silent="in a segmentation: a mask cannot hold two labels of a pixel",
)
def mixup_alphas(facts: Facts, values: Values) -> Distribution:
    by_images = log_log_interpolated(facts.train_images, (50_000, 1.0), (IMAGENET_IMAGES, 0.2))
    by_size = log_log_interpolated(facts.parameters, (3 * MILLION, 0.1), (11 * MILLION, 1.0))
    reason = f"0.2 on ImageNet, 1 on CIFAR; {facts.train_images:,} images and {size_of(facts)} here"
    source = "003:76; arXiv 1710.09412, sections 3.1 and 3.2"
    return Distribution(Float(0.05, 2.0, log=True), Normal(min(by_images, by_size), "medium"), reason, source)


@heuristic(
    "CutMix's strength is around 1, as in the paper, which draws the share of the pasted area uniformly.",
)
def cutmix_alphas(facts: Facts, values: Values) -> Distribution:
    reason = "1 draws the pasted share uniformly"
    return Distribution(Float(0.2, 2.0, log=True), Normal(1.0, "medium"), reason, "003:77; arXiv 1905.04899")


def _borne(facts: Facts) -> float:
    """Return how often a net gets distortions, relative to ResNet50's size:
    very small nets underfit (003:62)."""
    return log_log_interpolated(facts.parameters, (VERY_SMALL_NET, 0.5), (25 * MILLION, 1.0))


def _fitted(facts: Facts) -> float:
    """Return how often a run gets distortions, relative to one that sees 3 million images:
    short runs underfit."""
    return log_log_interpolated(images_seen(facts), (SHORT_RUN, 0.4), (LONG_RUN, 1.0))
