"""The rules for classes of unequal sizes, where the score that a search compares counts them alike.

None of the documents speaks of this. The sources are papers, and a measurement in
benchmarks/results/imbalance.md.
"""

from __future__ import annotations

from spaces.domains import Values
from spaces.facts import Facts
from spaces.rules.rulings import Distribution, Ruling, Rulings, Threshold, heuristic, weighted_choice

# From this ratio of the largest to the smallest class on corrections are tried: the mildest at which papers
# on long-tailed data measured a gain (arXiv 1901.05555, table 2; 1906.07413, table 2)
UNEQUAL = 10.0
SILENT = "where the score counts images alike, nor where the largest class is under 10 times the smallest"
SILENT_OF_MASKS = f"{SILENT}, nor in a segmentation"


def corrections(facts: Facts) -> Rulings:
    """Return how the first trial corrects; nothing where classes are alike or need not be."""
    if not corrected(facts):
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


def not_unequal_enough(facts: Facts) -> Threshold | None:
    """Return how far classes are from being corrected; None where the score does not count them alike, which
    is another reason."""
    ratio = Threshold("largest class over smallest", 1.0 / facts.class_balance, UNEQUAL)
    return ratio if facts.classes_count_alike else None


@heuristic(
    "Logits are adjusted in 3 of 4 trials where classes are unequal and the score counts them alike.",
    page="imbalance.md",
    silent=SILENT_OF_MASKS,
)
def logit_adjustments(facts: Facts, values: Values) -> Distribution | Threshold | None:
    if not corrected(facts):
        return not_unequal_enough(facts)
    domain, prior = weighted_choice({0.0: 0.25, 0.5: 0.2, 1.0: 0.4, 1.5: 0.15})
    return Distribution(domain, prior, _ratio(facts), "arXiv 2007.07314, section 5.2; the shares are ours")


@heuristic(
    "Small classes are shown more often in 7 of 10 trials where the score counts classes alike.",
    page="imbalance.md",
    silent=SILENT_OF_MASKS,
)
def samplings(facts: Facts, values: Values) -> Distribution | Threshold | None:
    if not corrected(facts):
        return not_unequal_enough(facts)
    domain, prior = weighted_choice({"natural": 0.3, "sqrt": 0.5, "balanced": 0.2})
    return Distribution(domain, prior, _ratio(facts), "arXiv 1910.09217, section 4.1; the shares are ours")


@heuristic(
    "Images of small classes count more in 4 of 10 trials where the score counts classes alike.",
    page="imbalance.md",
    silent=SILENT,
)
def class_weights(facts: Facts, values: Values) -> Distribution | Threshold | None:
    if not corrected(facts):
        return not_unequal_enough(facts)
    domain, prior = weighted_choice({"none": 0.6, "effective_number": 0.3, "inverse": 0.1})
    return Distribution(domain, prior, _ratio(facts), "arXiv 1901.05555, section 3; the shares are ours")


@heuristic(
    "The beta of effective numbers is 0.999 in 4 of 10 trials; the paper's four values are tried.",
    page="imbalance.md",
    silent=SILENT_OF_MASKS,
)
def betas(facts: Facts, values: Values) -> Distribution | Threshold | None:
    if not corrected(facts):
        return not_unequal_enough(facts)
    domain, prior = weighted_choice({0.9: 0.1, 0.99: 0.25, 0.999: 0.4, 0.9999: 0.25})
    reason = "1 / (1 - beta) is how many different images a class can have"
    return Distribution(domain, prior, reason, "arXiv 1901.05555, section 5; the shares are ours")


def _ratio(facts: Facts) -> str:
    return ratio_of_classes(facts, "images")


def ratio_of_classes(facts: Facts, counted: str) -> str:
    """Say how unequal classes are, whose images or pixels are counted, as a reason to correct."""
    ratio = 1.0 / facts.class_balance
    return (
        f"the largest class has {ratio:.3g} times the {counted} of the smallest, and the score counts them "
        "alike"
    )
