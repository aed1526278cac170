"""Holds the rules for timm's optimizers: which of them is tried, its rate and its decay.

Rates are at batch 256. The documents know none of these optimizers; the sources are papers and measurements.
"""

from __future__ import annotations

from dataclasses import replace

from spaces.domains import Values
from spaces.facts import Facts
from spaces.priors import Normal
from spaces.rules.optimizers import DECADES, RUN_ON_IMAGENET, learning_rates, weight_decay
from spaces.rules.rulings import (
    SHORT_RUN,
    Distribution,
    around,
    heuristic,
    images_seen,
    log_log_interpolated,
    weighted_choice,
)

NAME = "optimizer.name"
MUON = "muon"
NAMES = ("nadamw", MUON)
MUON_DECAY = 0.1
MUON_FACTOR = 2.0
"""In short runs the rule for Muon's rate looks at so many times what it is for AdamW."""


@heuristic(
    "From scratch, short runs with one of timm's optimizers mostly take Muon, long ones NAdamW as often.",
    """
    NAdamW is among the optimizers that set the targets of the AlgoPerf benchmark (arXiv 2306.07179). Muon
    makes the step of a matrix orthogonal (Jordan 2024, https://kellerjordan.github.io/posts/muon; arXiv
    2502.16982); timm's takes convolutions too, as matrices with a row for each output channel. It is tried
    from scratch only: where a net was pretrained by Adam, full fine-tuning by Muon ends worse (arXiv
    2605.10468), and a file of weights does not say by what it was trained. {silent}

    Muon has 8 of 10 such trials in runs that see up to 30,000 images, and half of them in the longest: in
    runs of 30,000 to 90,000 images a convolutional net of 20,000 parameters ended as high with Muon as with
    NAdamW, or higher (benchmarks/results/optimizers.md). Nets with attention take each in half of the trials.
    """,
    silent="for a model with pretrained weights: NAdamW stands alone there",
)
def names(facts: Facts, values: Values) -> Distribution | None:
    if facts.pretrained:
        return None
    short = 0.5 if facts.attention else 0.8
    muon = log_log_interpolated(images_seen(facts), (SHORT_RUN, short), (RUN_ON_IMAGENET, 0.5))
    domain, prior = weighted_choice(dict(zip(NAMES, (1.0 - muon, muon), strict=True)))
    return Distribution(
        domain,
        prior,
        "NAdamW is AdamW that looks ahead; Muon makes a step orthogonal, and is for training from scratch",
        "arXiv 2306.07179, 2502.16982, 2605.10468; the shares are ours",
    )


@heuristic(
    "The rate of timm's optimizers at batch 256 lies around AdamW's; Muon's around twice that in short runs.",
    """
    NAdamW is AdamW with a momentum that looks ahead. timm scales the steps of Muon to the size of AdamW's
    (arXiv 2502.16982, section 2.2), so that one rate means nearly the same for both. In runs that see 30,000
    to 90,000 images the rule for AdamW looks around 0.03 to 0.05, and Muon ended best at 0.05 to 0.2
    (benchmarks/results/optimizers.md; AdamW itself at 0.05 to 0.1).
    """,
)
def rates(facts: Facts, values: Values) -> Distribution:
    found = learning_rates(facts, values, "timm")
    if values.get(NAME) != MUON or facts.lr_band_kind == "timm" or not isinstance(found.prior, Normal):
        return found
    measured = not (facts.attention or facts.pretrained)
    seen = images_seen(facts)
    factor = log_log_interpolated(seen, (SHORT_RUN, MUON_FACTOR), (RUN_ON_IMAGENET, 1.0)) if measured else 1.0
    times = f"x{factor:.2g}" if factor > 1.0 else "as"
    reason = f"{times} AdamW's, to whose steps timm scales Muon's"
    return replace(found, prior=replace(found.prior, centre=found.prior.centre * factor), reason=reason)


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
