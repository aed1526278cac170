"""Holds the rules for random changes of images with masks: windows of other scales, pixels of other images.

`000:49` is a line of the training tricks notes (docs/sources.md).
"""

from __future__ import annotations

from spaces.domains import Float, Value, Values
from spaces.facts import Facts
from spaces.priors import Normal
from spaces.rules.augmentations import LONG, LONG_ENOUGH, long_enough
from spaces.rules.mask_losses import BOTH_MEASURED, MEASURED, ONLY_MASKS
from spaces.rules.mask_rates import PUBLISHED_RUN
from spaces.rules.rulings import (
    SHORT_RUN,
    Distribution,
    Ruling,
    Rulings,
    heuristic,
    images_seen,
    log_log_interpolated,
    weighted_choice,
)
from trainable.recipe.windows import LARGEST_WINDOW, window_side

LEAST_SCALE, LARGEST_SCALE = 0.5, 2.0
NEAR_LEAST_SCALE, NEAR_LARGEST_SCALE = 0.8, 1.25
"""These factors were better in short runs: measured with a net of 0.12 million parameters."""
SCALED = "arXiv 1706.05587, section 4.1"


def window(facts: Facts) -> Rulings:
    """Return the side of the windows that are trained on, where it is the one that was measured.

    From 321 to 513 px the documents gained some 10 %, up to the image's own size (000:49). The device bounds
    it: a window of twice the side takes four times as long.
    """
    gpu = facts.gpus > 0
    if not facts.dense or facts.longer_side is None:
        return {}
    side = window_side(facts.longer_side, gpu=gpu)
    if side != facts.image_size:
        return {}
    reason = (
        f"as large as most images, {facts.longer_side} px, at most {LARGEST_WINDOW[gpu]} px on a "
        f"{'GPU' if gpu else 'CPU'}: larger windows gained some 10 %"
    )
    return {"data.image_size": Ruling(side, reason, "000:49; arXiv 1706.05587, section 4.1")}


def crop_kind(facts: Facts) -> Ruling[str]:
    """Return the windows of the documented recipe; as they are in short runs, by the figures of
    `crop_kinds`."""
    if not long_enough(facts):
        reason = (
            f"a run of under {LONG_ENOUGH} epochs learns better from windows as they are; the limit is ours"
        )
        return Ruling("none", reason, MEASURED)
    reason = f"images are scaled by {LEAST_SCALE:g} to {LARGEST_SCALE:g} before a window is cut out"
    return Ruling("scaled", reason, SCALED)


def scales(facts: Facts) -> Rulings:
    """Return the least and the largest factor of an image's size."""
    reason = "usual in segmentation"
    found = {"scale_min": LEAST_SCALE, "scale_max": LARGEST_SCALE}
    return {f"augmentation.crop.{name}": Ruling(each, reason, SCALED) for name, each in found.items()}


@heuristic(
    "Images with masks are scaled before a window is cut out, in half of the trials of a short run and in "
    "most of a long one.",
    """
    Factors of 0.5 to 2 are usual since DeepLab (arXiv 1706.05587, section 4.1), in runs that see half a
    million windows. In runs that see 500 to 1,000 they cost: on images of nuclei and on made shapes windows
    as they are ended 2.1 ± 1.4 and 7.7 ± 1.0 points of mean IoU higher, shifted ones 2.2 ± 0.8 and 5.7 ± 1.2,
    and those scaled by 0.8 to 1.25 2.4 ± 1.5 and 10.4 ± 0.6 (n=3 seeds, benchmarks/results/mask-rules.md);
    in 40 epochs from pretrained weights windows as they are ended 0.8 ± 0.5 lower and 2.6 ± 0.3 higher (n=3,
    benchmarks/results/segmentation-tricks.md). {silent} The shares are ours.
    """,
    silent=ONLY_MASKS,
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
    "0.5 is the papers' value, and 0.8 was better in short runs (see `augmentation.crop.kind`). {silent}",
    silent=ONLY_MASKS,
)
def scale_mins(facts: Facts, values: Values) -> Distribution:
    centre = log_log_interpolated(
        images_seen(facts), (SHORT_RUN, NEAR_LEAST_SCALE), (PUBLISHED_RUN, LEAST_SCALE)
    )
    reason = f"{LEAST_SCALE:g} in long runs, nearer to 1 in short ones"
    return Distribution(Float(0.25, 1.0, log=True), Normal(centre, "medium"), reason, f"{SCALED}; {MEASURED}")


@heuristic(
    "The largest factor of an image's size is around 2 in long runs, and around 1.25 in short ones.",
    "2 is the papers' value, and 1.25 was better in short runs (see `augmentation.crop.kind`). {silent}",
    silent=ONLY_MASKS,
)
def scale_maxima(facts: Facts, values: Values) -> Distribution:
    centre = log_log_interpolated(
        images_seen(facts), (SHORT_RUN, NEAR_LARGEST_SCALE), (PUBLISHED_RUN, LARGEST_SCALE)
    )
    reason = f"{LARGEST_SCALE:g} in long runs, nearer to 1 in short ones"
    return Distribution(Float(1.0, 4.0, log=True), Normal(centre, "medium"), reason, f"{SCALED}; {MEASURED}")


@heuristic(
    "Images with masks are mixed in 1 of 20 trials of a run of 10 epochs, and in 3 of 10 from 100 on.",
    """
    CutMix pastes a rectangle and ClassMix the pixels of half of the classes, with their labels. Both were
    made for images without labels (arXiv 1906.01916, 2007.07936), and few published recipes have them. In
    runs of 12 epochs both lost: 0.7 ± 0.5 and 0.3 ± 0.8 points of mean IoU on nuclei, 4.1 ± 2.9 and 4.7 ± 1.6
    on made shapes (n=3 seeds, benchmarks/results/mask-rules.md); in 40 epochs from pretrained weights they
    changed nuclei by -0.5 ± 0.2 and 0.2 ± 0.1, and shapes by -1.9 ± 1.0 and -4.8 ± 1.6 (n=3,
    benchmarks/results/segmentation-tricks.md). {silent} The shares are ours.
    """,
    silent=f"in runs of under 10 epochs, and {ONLY_MASKS}",
)
def mixings(facts: Facts, values: Values) -> Distribution | None:
    if not long_enough(facts):
        return None
    on = log_log_interpolated(facts.epochs, (LONG_ENOUGH, 0.05), (LONG, 0.3))
    weights: dict[Value, float] = {"none": 1.0 - on, "cutmix": 0.5 * on, "classmix": 0.5 * on}
    domain, prior = weighted_choice(weights)
    reason = f"made for images without labels, so they are rare: {facts.epochs} epochs here"
    return Distribution(
        domain, prior, reason, f"arXiv 1906.01916, 2007.07936; {BOTH_MEASURED}; the shares are ours"
    )
