"""Holds the rules for the loss of a segmentation, and for how finely its network looks."""

from __future__ import annotations

from spaces.domains import Value, Values
from spaces.facts import Facts
from spaces.rules.rulings import Distribution, Ruling, Rulings, heuristic, weighted_choice

ONLY_MASKS = "in a classification"
MEASURED = "measured: benchmarks/results/mask-rules.md"
BOTH_MEASURED = f"{MEASURED}, benchmarks/results/segmentation-tricks.md"
"""Names the runs from scratch, and with those from pretrained weights."""
_DICE = "arXiv 1606.04797, 1809.10486"


def losses(facts: Facts, values: Values) -> Rulings:
    """Return the documented loss, cross-entropy alone, at the size of the labels: +1.3 % over the mask at
    the size of the answers (000:50)."""
    if not facts.dense:
        return {}
    alone = Ruling[Value](0.0, "cross-entropy alone is the papers' usual loss", "arXiv 1411.4038, section 3")
    return {
        "task.loss.dice": alone,
        "task.loss.lovasz": alone,
        "task.loss.resolution": Ruling("labels", "answers are enlarged to the mask: +1.3 %", "000:50"),
    }


@heuristic(
    "Dice weighs as much as the cross-entropy in half of the trials, and nothing in 3 of 10.",
    """
    nnU-Net adds both up (arXiv 1809.10486). Dice counts a class as much as another, however few its pixels
    (arXiv 1606.04797, section 3), as the mean IoU does: with a weight of 1 it gained 3.2 ± 1.3 points of that
    on nuclei and 3.4 ± 0.8 on made shapes in runs of 12 epochs, and with a weight of 0.5 1.6 ± 1.1 and
    4.3 ± 1.8 (n=3 seeds, benchmarks/results/mask-rules.md); from pretrained weights, in 40 epochs, a weight
    of 1 gained 0.5 ± 0.3 and 2.1 ± 0.9 (n=3, benchmarks/results/segmentation-tricks.md). {silent} The shares
    are ours.
    """,
    silent=ONLY_MASKS,
)
def dices(facts: Facts, values: Values) -> Distribution:
    domain, prior = weighted_choice({0.0: 0.3, 0.5: 0.2, 1.0: 0.5})
    reason = "it counts a class as much as another, as the mean IoU does"
    return Distribution(domain, prior, reason, f"{_DICE}; {BOTH_MEASURED}; the shares are ours")


@heuristic(
    "The Lovasz-Softmax loss is added in a quarter of the trials.",
    """
    It is a bound of 1 - IoU (arXiv 1705.08790), and costs a sort of all pixels in each step. It gained 1.5 ±
    1.6 points of mean IoU on nuclei and 8.8 ± 3.1 on made shapes in runs of 12 epochs (n=3 seeds,
    benchmarks/results/mask-rules.md); from pretrained weights, in 40 epochs, 0.8 ± 0.1 and 2.7 ± 0.3 (n=3,
    benchmarks/results/segmentation-tricks.md). {silent} The shares are ours.
    """,
    silent=ONLY_MASKS,
)
def lovaszes(facts: Facts, values: Values) -> Distribution:
    domain, prior = weighted_choice({0.0: 0.75, 1.0: 0.25})
    reason = "a bound of 1 - IoU, which sorts all pixels"
    return Distribution(domain, prior, reason, f"arXiv 1705.08790; {BOTH_MEASURED}; the shares are ours")


@heuristic(
    "Where you ask, a DeepLabv3+ answers for each 16 pixels in 3 of 4 trials, and for each 8 in the others.",
    """
    8 is a little more accurate, and takes a multiple of the time and of the memory (arXiv 1706.05587, section
    4.1, 1802.02611, section 4). {silent} The shares are ours.
    """,
    silent="for other networks, which have no such field",
)
def output_strides(facts: Facts, values: Values) -> Distribution | None:
    if values.get("model.kind") != "smp" or values.get("model.name") != "deeplabv3plus":
        return None
    domain, prior = weighted_choice({16: 0.75, 8: 0.25})
    reason = "8 is more accurate than 16, and takes a multiple of the time"
    return Distribution(domain, prior, reason, "arXiv 1706.05587, 1802.02611; the shares are ours")


def output_stride(facts: Facts, values: Values) -> Rulings:
    """Return how finely a DeepLabv3+ looks in the documented recipe."""
    if values.get("model.kind") != "smp" or values.get("model.name") != "deeplabv3plus":
        return {}
    reason = "16 in training, which is far quicker than 8"
    return {"model.output_stride": Ruling(16, reason, "arXiv 1706.05587, section 4.1")}
