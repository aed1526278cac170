"""Holds the rules for classes of unequal sizes, where the score that a search compares counts them alike.

None of the documents speaks of this. The sources are papers, and a measurement in
benchmarks/results/imbalance.md.
"""

from __future__ import annotations

from spaces.domains import Values
from spaces.facts import Facts
from spaces.rules.rulings import Distribution, Ruling, Rulings, heuristic, weighted_choice

UNEQUAL = 10.0
"""From this ratio of the largest to the smallest class on, corrections are tried: it is the mildest at which
papers on long-tailed data measured a gain (arXiv 1901.05555, table 2; 1906.07413, table 2)."""
SILENT = "where the score counts images alike, nor where the largest class is under 10 times the smallest"
_MASKS = "measured: benchmarks/results/mask-rules.md"
SILENT_OF_MASKS = f"{SILENT}, nor in a segmentation"


def details(facts: Facts, values: Values) -> Rulings:
    """Return how the first trial corrects; nothing where classes are alike or need not be."""
    if facts.dense or not corrected(facts):
        return {}
    reason = f"{_ratio(facts)}; the square root with a tau of 1 gained most of what was measured"
    return {
        "loop.sampling": Ruling("sqrt", reason, "arXiv 1805.00932, section 2.2; ours"),
        "regularisation.logit_adjustment": Ruling(1.0, reason, "arXiv 2007.07314, section 5.2; ours"),
    }


def corrected(facts: Facts) -> bool:
    """Return whether unequal classes are corrected for.

    A score that counts images alike, such as accuracy, is best with the shares that the classes have (Bayes'
    rule; arXiv 2007.07314, section 3).
    """
    return facts.classes_count_alike and facts.class_balance * UNEQUAL <= 1.0


@heuristic(
    "Logits are adjusted in 3 of 4 trials where classes are unequal and the score counts them alike.",
    """
    The adjusted loss is consistent for such scores at a tau of 1 (arXiv 2007.07314, section 5.2). On
    Fashion-MNIST with a ratio of 100 a tau of 1 gained 12.0 ± 1.1 points of balanced accuracy, and lost 4.2 ±
    0.3 of accuracy on classes as they are; with a ratio of 10, 1.8 ± 0.5 and 2.0 ± 0.3 (n=3, a net of 20,000
    parameters, benchmarks/results/imbalance.md). A segmentation's score, the mean IoU, also counts the pixels
    that are wrongly of a small class, which an adjustment makes more of: a tau of 1 changed it by +2.7 ± 3.1
    points on nuclei and by -15.5 ± 4.5 on made shapes (n=3, benchmarks/results/mask-rules.md).
    {silent}
    """,
    silent=SILENT_OF_MASKS,
)
def logit_adjustments(facts: Facts, values: Values) -> Distribution | None:
    if not corrected(facts):
        return None
    domain, prior = weighted_choice({0.0: 0.25, 0.5: 0.2, 1.0: 0.4, 1.5: 0.15})
    return Distribution(domain, prior, _ratio(facts), "arXiv 2007.07314, section 5.2; the shares are ours")


@heuristic(
    "Small classes are shown more often in 7 of 10 trials where the score counts classes alike.",
    """
    Balanced sampling learns the images of small classes by heart; the square root lies between (arXiv
    1910.09217, section 4.1). On Fashion-MNIST with a ratio of 100 the square root gained 16.6 ± 0.9 points of
    balanced accuracy, 17.6 ± 0.7 with a tau of 1 besides, and balanced sampling 11.2 ± 2.0; with a ratio of
    10 they gained 2.0 ± 0.8, 2.1 ± 0.4 and 1.0 ± 0.6 (n=3, benchmarks/results/imbalance.md). An adjustment of
    logits follows the classes as they are shown, so the two never correct twice.
    {silent}
    """,
    silent=SILENT_OF_MASKS,
)
def samplings(facts: Facts, values: Values) -> Distribution | None:
    if not corrected(facts):
        return None
    domain, prior = weighted_choice({"natural": 0.3, "sqrt": 0.5, "balanced": 0.2})
    return Distribution(domain, prior, _ratio(facts), "arXiv 1910.09217, section 4.1; the shares are ours")


@heuristic(
    "Images of small classes count more in 4 of 10 trials where the score counts classes alike.",
    """
    Effective numbers of images temper the weights (arXiv 1901.05555, section 3). On Fashion-MNIST with a
    ratio of 100 those with a beta of 0.999 gained 16.0 ± 0.6 points of balanced accuracy, and inverse counts
    15.3 ± 1.2 (n=3, benchmarks/results/imbalance.md). In a segmentation the pixels of a class are counted,
    and weights by inverse counts have 1 of 10 trials, as SegNet has them (arXiv 1511.00561, after 1411.4734):
    they changed the mean IoU by +2.4 ± 0.8 points on nuclei and by -17.6 ± 3.4 on made shapes (n=3,
    benchmarks/results/mask-rules.md). Those of effective numbers are all alike for so many pixels. {silent}
    """,
    silent=SILENT,
)
def class_weights(facts: Facts, values: Values) -> Distribution | None:
    if not corrected(facts):
        return None
    if facts.dense:
        domain, prior = weighted_choice({"none": 0.9, "inverse": 0.1})
        source = f"arXiv 1411.4734, 1511.00561; {_MASKS}; the shares are ours"
        return Distribution(domain, prior, _ratio(facts), source)
    domain, prior = weighted_choice({"none": 0.6, "effective_number": 0.3, "inverse": 0.1})
    return Distribution(domain, prior, _ratio(facts), "arXiv 1901.05555, section 3; the shares are ours")


@heuristic(
    "The beta of effective numbers is 0.999 in 4 of 10 trials; the paper's four values are tried.",
    "The best one differed from set to set in the paper. {silent}",
    silent=SILENT_OF_MASKS,
)
def betas(facts: Facts, values: Values) -> Distribution | None:
    if not corrected(facts):
        return None
    domain, prior = weighted_choice({0.9: 0.1, 0.99: 0.25, 0.999: 0.4, 0.9999: 0.25})
    reason = "1 / (1 - beta) is how many different images a class can have"
    return Distribution(domain, prior, reason, "arXiv 1901.05555, section 5; the shares are ours")


def _ratio(facts: Facts) -> str:
    ratio = 1.0 / facts.class_balance
    counted = "pixels" if facts.dense else "images"
    return (
        f"the largest class has {ratio:.3g} times the {counted} of the smallest, and the score counts them "
        "alike"
    )
