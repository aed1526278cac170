"""Which random changes of the images fit their size, the model's size and the length of the run.

Sources are cited as in `spaces.heuristics`.
"""

from __future__ import annotations

from spaces.domains import Choice, Float, Integer
from spaces.facts import Facts
from spaces.rulings import MILLION, Ruling, interpolated, rounded, size_of

SMALLEST_SHIFTED_SIDE = 16
LARGEST_PADDED_SIDE = 64
SMALLEST_POLICY_SIDE = 24
LONG_ENOUGH = 10
VERY_SMALL_NET = 1.5 * MILLION
"""MobileNetV2 x0.25, on which the documents measured that strong crops make a net underfit (003:62-67)."""


def crop_kind(facts: Facts) -> Ruling[str]:
    """Which random crop suits the images' size; none in short runs.

    Measured without and with shifts, n=1 each: 85.1 and 81.8 % on 4,000 Fashion-MNIST images x 9 epochs, 88.3
    and 85.1 % on 10,000 x 6 epochs, but 94.8 and 96.1 % on 1,442 photographs at 32 px x 20 epochs.
    """
    side = facts.image_size
    if not _long_enough(facts):
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
    """How far a padded crop shifts, of the side."""
    return Ruling(0.125, "4 of 32 px", "arXiv 1512.03385, section 4.2")


def crop_fractions(facts: Facts) -> Ruling[Float]:
    """In pixels, since a shift is whole: half to one and a half times 4 of 32, and at least from 1 to 2."""
    side = facts.image_size
    low = max(1.0, side / 16)
    high = max(low + 1.0, side * 3 / 16)
    reason = f"shifts of {low:.2g} to {high:.2g} px of {side}, around 4 of 32"
    return Ruling(Float(low / side, high / side), reason, "arXiv 1512.03385, section 4.2")


def crop_scale(facts: Facts) -> Ruling[float]:
    """0.2 for very small nets, whose accuracy rose by 0.83 points over 0.08; 0.35 to fine-tune is ours."""
    if facts.pretrained:
        return Ruling(0.35, "pretrained weights know the objects whole; 0.35 is ours", "003:62, 003:84")
    scale = rounded(interpolated(facts.parameters, (3 * MILLION, 0.2), (6 * MILLION, 0.08)))
    reason = f"0.08 as usual, 0.2 for very small nets (+0.83 points); this is {size_of(facts)}"
    return Ruling(scale, reason, "003:62-67")


def crop_scales(facts: Facts) -> Ruling[Float]:
    """Least areas of a crop to try."""
    rule = crop_scale(facts)
    reason = f"from half of {rule.what:g}, never under 0.08, to 0.6, since larger crops mend underfitting"
    return Ruling(Float(max(0.08, rule.what / 2), 0.6, log=True), reason, "003:62-67, 003:84")


def flip_probability(facts: Facts) -> Ruling[float]:
    """How often each allowed flip is done."""
    allowed = ", ".join(facts.flips) or "none here"
    return Ruling(0.5, f"for the flips under which a label survives: {allowed}", "000:22, 003:70")


def policy(facts: Facts) -> Ruling[str]:
    """Which policy of distortions the first trial uses."""
    return Ruling("none", "the standard transforms are crop and flip alone", "003:70-74")


def policies(facts: Facts) -> Ruling[Choice] | None:
    """None in short runs, and on images so small that the operations destroy the object."""
    if not _long_enough(facts) or facts.image_size < SMALLEST_POLICY_SIDE:
        return None
    reason = "RandAugment brought +0.39 points over 300 epochs"
    return Ruling(Choice(("none", "randaugment")), reason, "003:70-80; arXiv 1909.13719")


def magnitudes(facts: Facts) -> Ruling[Integer]:
    """5 to 15 of 30 at ResNet50 size, around the paper's 9; weaker below, as larger nets bear more."""
    low = interpolated(facts.parameters, (VERY_SMALL_NET, 1), (25 * MILLION, 5))
    high = interpolated(facts.parameters, (VERY_SMALL_NET, 9), (25 * MILLION, 15))
    reason = f"larger nets bear stronger distortions: 5 to 15 at ResNet50 size; this is {size_of(facts)}"
    return Ruling(Integer(round(low), round(high)), reason, "003:62; arXiv 1909.13719, section 4.1")


def masking(facts: Facts) -> Ruling[str]:
    """How the first trial hides parts of the images."""
    return Ruling("none", "the standard transforms are crop and flip alone", "003:70-74")


def maskings(facts: Facts) -> Ruling[Choice] | None:
    """None in short runs, on tiny images, and for very small nets, which underfit already (003:62)."""
    fits = facts.image_size >= SMALLEST_POLICY_SIDE and facts.parameters >= VERY_SMALL_NET
    if not fits or not _long_enough(facts):
        return None
    reason = "RandomErasing brought +0.60 points over 300 epochs"
    return Ruling(Choice(("none", "erasing")), reason, "003:70-81; arXiv 1708.04896")


def erasing_probability(facts: Facts) -> Ruling[float]:
    """Which share of images loses a rectangle, where any does."""
    return Ruling(0.5, "the paper erases half of the images", "003:81; arXiv 1708.04896")


def erasing_probabilities(facts: Facts) -> Ruling[Choice]:
    """Shares of images to erase a rectangle of."""
    reason = "the paper erases half of the images; a quarter is gentler, and ours"
    return Ruling(Choice((0.25, 0.5)), reason, "003:81; arXiv 1708.04896")


def mixing(facts: Facts) -> Ruling[str]:
    """How the first trial mixes images."""
    return Ruling("none", "the standard transforms are crop and flip alone", "003:70-74")


def mixings(facts: Facts) -> Ruling[Choice] | None:
    """CutMix only from 10 M parameters.

    The documents measured mixing on ResNet50 alone, and saw smoothing and strong crops, which regularise
    like it, harm ResNet18 and smaller nets. So small nets get mixup only, whose alpha can make it weak.
    """
    if not _long_enough(facts):
        return None
    if facts.parameters < 10 * MILLION:
        reason = f"CutMix would make a small net underfit; weak mixup may not; this is {size_of(facts)}"
        return Ruling(Choice(("none", "mixup")), reason, "003:59, 003:62, 003:70-77")
    reason = "CutMix +1.08 and mixup +0.97 points, the largest gains, over 300 epochs"
    return Ruling(Choice(("none", "mixup", "cutmix")), reason, "003:70-77; arXiv 1710.09412, 1905.04899")


def mixup_alphas(facts: Facts) -> Ruling[Float]:
    """Strengths of mixup to try, weaker for small nets."""
    low = rounded(interpolated(facts.parameters, (3 * MILLION, 0.05), (25 * MILLION, 0.1)))
    high = rounded(interpolated(facts.parameters, (3 * MILLION, 0.2), (25 * MILLION, 1.0)))
    reason = f"0.2 on ImageNet to 1 on CIFAR for large nets, at most 0.2 for small; this is {size_of(facts)}"
    return Ruling(Float(low, high, log=True), reason, "003:70-76; arXiv 1710.09412, sections 3.1 and 3.2")


def _long_enough(facts: Facts) -> bool:
    """The gains of 003:70-82 took 300 epochs; a net that does not fit the plain images underfits (003:84)."""
    return facts.epochs >= LONG_ENOUGH
