"""Holds the rules for timm's optimizers: which of them is tried, its rate and its decay.

Rates are at batch 256. The documents know none of these optimizers; the sources are papers and measurements.
"""

from __future__ import annotations

from dataclasses import replace

from spaces.facts import Facts
from spaces.priors import Normal
from spaces.rules.optimizers import DECADES, learning_rates, weight_decay
from spaces.rules.rulings import Distribution, around, heuristic, weighted_choice
from spaces.space import Values

NAME = "optimizer.name"
MUON = "muon"
MUON_DECAY = 0.1


@heuristic(
    "From scratch, half of the trials with one of timm's optimizers take NAdamW, the other half Muon.",
    """
    NAdamW is among the optimizers that set the targets of the AlgoPerf benchmark (arXiv 2306.07179). Muon
    makes the step of a matrix orthogonal (Jordan 2024, https://kellerjordan.github.io/posts/muon; arXiv
    2502.16982); timm's takes convolutions too, as matrices with a row for each output channel. It is tried
    from scratch only: where a net was pretrained by Adam, full fine-tuning by Muon ends worse (arXiv
    2605.10468), and a file of weights does not say by what it was trained. {silent}
    """,
    silent="for a model with pretrained weights: NAdamW stands alone there",
)
def names(facts: Facts, values: Values) -> Distribution | None:
    if facts.pretrained:
        return None
    domain, prior = weighted_choice({"nadamw": 0.5, MUON: 0.5})
    return Distribution(
        domain,
        prior,
        "NAdamW is AdamW that looks ahead; Muon makes a step orthogonal, and is for training from scratch",
        "arXiv 2306.07179, 2502.16982, 2605.10468; the shares are ours",
    )


@heuristic(
    "The rate of timm's optimizers at batch 256 lies around AdamW's.",
    """
    NAdamW is AdamW with a momentum that looks ahead. timm scales the steps of Muon to the size of AdamW's
    (arXiv 2502.16982, section 2.2), so that one rate means the same for both.
    """,
)
def rates(facts: Facts, values: Values) -> Distribution:
    found = learning_rates(facts, values, "timm")
    reason = "as AdamW's, to whose steps timm scales Muon's" if values.get(NAME) == MUON else found.reason
    return replace(found, reason=reason)


@heuristic(
    "The decoupled decay of NAdamW lies around AdamW's, and that of Muon around 0.1.",
    """
    Without decay Muon's weights grow (arXiv 2502.16982, section 2.1), and its language models took 0.1. Only
    papers give these values, so the confidence is low.
    """,
)
def decays(facts: Facts, values: Values) -> Distribution:
    rule = weight_decay(facts, "timm")
    domain, _ = around(rule.what, DECADES, "low")
    source = f"{rule.source}; arXiv 2502.16982, section 2.2"
    if values.get(NAME) == MUON:
        return Distribution(domain, Normal(MUON_DECAY, "low"), "without decay Muon's weights grow", source)
    return Distribution(domain, Normal(rule.what, "low"), rule.reason, source)
