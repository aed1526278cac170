"""Holds the rules for classes of unequal sizes, where the score that a search compares counts them alike.

None of the documents speaks of this. The sources are papers, and a measurement in
benchmarks/results/imbalance.md.
"""

from __future__ import annotations

from spaces.facts import Facts
from spaces.rules.rulings import Distribution, Ruling, Rulings, heuristic, weighted_choice
from spaces.space import Values

UNEQUAL = 10.0
"""From this ratio of the largest to the smallest class on, corrections are tried: it is the mildest at which
papers on long-tailed data measured a gain (arXiv 1901.05555, table 2; 1906.07413, table 2)."""
SILENT = "where the score counts images alike, nor where the largest class is under 10 times the smallest"


def details(facts: Facts, values: Values) -> Rulings:
    """Returns the logit adjustment of the first trial; nothing where classes are alike or need not be."""
    if not corrected(facts):
        return {}
    reason = f"{_ratio(facts)}; a tau of 1 is right for scores that count classes alike"
    return {"regularisation.logit_adjustment": Ruling(1.0, reason, "arXiv 2007.07314, section 5.2")}


def corrected(facts: Facts) -> bool:
    """Returns whether unequal classes are corrected for.

    A score that counts images alike, such as accuracy, is best with the shares that the classes have (Bayes'
    rule; arXiv 2007.07314, section 3).
    """
    return facts.classes_count_alike and facts.class_balance * UNEQUAL <= 1.0


@heuristic(
    "Logits are adjusted in 3 of 4 trials where classes are unequal and the score counts them alike.",
    """
    The adjusted loss is consistent for such scores at a tau of 1; a tuned tau gained a little more in the
    paper (arXiv 2007.07314, sections 5.2 and 6). It had 22.3 % of balanced error on CIFAR-10 with a ratio of
    100, where no correction had 27.2 %. {silent}
    """,
    silent=SILENT,
)
def logit_adjustments(facts: Facts, values: Values) -> Distribution | None:
    if not corrected(facts):
        return None
    domain, prior = weighted_choice({0.0: 0.25, 0.5: 0.2, 1.0: 0.4, 1.5: 0.15})
    return Distribution(domain, prior, _ratio(facts), "arXiv 2007.07314, section 5.2; the shares are ours")


@heuristic(
    "Small classes are shown more often in half of the trials where the score counts classes alike.",
    """
    Balanced sampling learns the images of small classes by heart; the square root lies between (arXiv
    1910.09217, section 4.1). An adjustment of logits follows the classes as they are shown, so the two never
    correct twice. {silent}
    """,
    silent=SILENT,
)
def samplings(facts: Facts, values: Values) -> Distribution | None:
    if not corrected(facts):
        return None
    domain, prior = weighted_choice({"natural": 0.5, "sqrt": 0.3, "balanced": 0.2})
    return Distribution(domain, prior, _ratio(facts), "arXiv 1910.09217, section 4.1; the shares are ours")


@heuristic(
    "Images of small classes count more in 3 of 10 trials where the score counts classes alike.",
    """
    Effective numbers of images temper the weights, and gained more than inverse counts on seven of eight
    long-tailed sets (arXiv 1901.05555, table 2). {silent}
    """,
    silent=SILENT,
)
def class_weights(facts: Facts, values: Values) -> Distribution | None:
    if not corrected(facts):
        return None
    domain, prior = weighted_choice({"none": 0.7, "effective_number": 0.2, "inverse": 0.1})
    return Distribution(domain, prior, _ratio(facts), "arXiv 1901.05555, section 3; the shares are ours")


@heuristic(
    "The beta of effective numbers is 0.999 in 4 of 10 trials; the paper's four values are tried.",
    "The best one differed from set to set in the paper. {silent}",
    silent=SILENT,
)
def betas(facts: Facts, values: Values) -> Distribution | None:
    if not corrected(facts):
        return None
    domain, prior = weighted_choice({0.9: 0.1, 0.99: 0.25, 0.999: 0.4, 0.9999: 0.25})
    reason = "1 / (1 - beta) is how many different images a class can have"
    return Distribution(domain, prior, reason, "arXiv 1901.05555, section 5; the shares are ours")


def _ratio(facts: Facts) -> str:
    ratio = 1.0 / facts.class_balance
    return (
        f"the largest class has {ratio:.3g} times the images of the smallest, and the score counts them alike"
    )
