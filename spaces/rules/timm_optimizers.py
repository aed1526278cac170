"""The rules for timm's optimizers: which of them is tried, its rate and its decay.

Rates are at batch 256. The documents know none of these optimizers; the sources are papers and measurements.
"""

from __future__ import annotations

from dataclasses import replace

from spaces.domains import Values
from spaces.facts import Facts
from spaces.priors import Normal
from spaces.rules.optimizers import DECADES, learning_rates, weight_decay
from spaces.rules.rates import RUN_ON_IMAGENET
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
MUON_FACTOR = 2.0  # in short runs: Muon's rate over AdamW's


@heuristic(
    "From scratch, short runs with one of timm's optimizers mostly take Muon, long ones NAdamW as often.",
    page="optimizers.md",
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
    page="learning-rate.md",
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
    page="weight-decay.md",
)
def decays(facts: Facts, values: Values) -> Distribution:
    rule = weight_decay(facts, "timm")
    domain, _ = around(rule.what, DECADES, "low")
    source = f"{rule.source}; arXiv 2502.16982, section 2.2"
    if values.get(NAME) == MUON:
        return Distribution(domain, Normal(MUON_DECAY, "low"), "without decay Muon's weights grow", source)
    return Distribution(domain, Normal(rule.what, "low"), rule.reason, source)
