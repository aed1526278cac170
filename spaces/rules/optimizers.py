"""The documents' rules for the optimizer, its rate and its decay, for every kind that a person may pin.

Rates are at batch 256. What differs from task to task is asked of `spaces.rules.tasks`. Sources such as
`001:22-76` are lines of the guides in docs/sources.md: 000 is the training tricks notes, 001 the PyTorch
tuning guide, 002 the PyTorch speed notes, 003 the PaddleClas guide and 004 the 17 ways guide.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from spaces.domains import Float, Value, Values
from spaces.facts import Facts
from spaces.priors import Confidence, Normal
from spaces.rules.finetuning import freezes_norm
from spaces.rules.rates import KINDS, RUN_ON_IMAGENET, TIMM, OptimizerKind
from spaces.rules.rulings import (
    SHORT_RUN,
    Distribution,
    Ruling,
    Rulings,
    around,
    heuristic,
    images_seen,
    log_log_interpolated,
    number_at,
    rounded,
    weighted_choice,
    word_at,
)
from spaces.rules.tasks import rules_of

LARS_BATCH = 4096
DOCUMENTS_TUNED_RATE = 0.001  # SGD's for pretrained weights in the documents (003:88)
DECADES = 1.5  # so far above and below their rule rates and decays are tried: a factor of 30
TIMM_NAME = "optimizer.name"
MUON = "muon"
TIMM_NAMES = ("nadamw", MUON)
MUON_DECAY = 0.1
MUON_FACTOR = 2.0  # in short runs: Muon's rate over AdamW's
_SWEEP = "001:22-76; arXiv 1506.01186, section 3.3; the middle is ours"


@heuristic(
    "SGD has 7 of 10 trials of a long run; in a short one SGD and Muon have a third each, AdamW a fifth.",
    page="optimizers.md",
)
def kinds(facts: Facts, values: Values) -> Distribution:
    weights: dict[Value, float]
    if facts.attention:
        weights = {"sgd": 0.15, "adamw": 0.8 - TIMM, "lamb": 0.05, "timm": TIMM}
        reason = "attention models train better with AdamW"
    elif facts.pretrained:
        weights = {"sgd": 0.25, "adamw": 0.75 - TIMM, "timm": TIMM}
        reason = "from pretrained weights AdamW ended ahead of SGD on 9 of 10 sets"
    else:
        weights, reason = rules_of(facts.task).optimizers(facts)
    if number_at(values, "loop.batch_size") >= LARS_BATCH:
        weights["lars"] = 0.1
    domain, prior = weighted_choice(weights)
    papers = "arXiv 2110.00476, 2012.12877, 2306.07179"
    return Distribution(domain, prior, reason, f"003:4, 001:136, 002:22, 004:83; {papers}")


def optimizer(facts: Facts) -> Ruling[str]:
    """Return which optimizer the documented recipe uses."""
    return rules_of(facts.task).optimizer(facts)


def details(facts: Facts, values: Values) -> Rulings:
    """Return the values that the documents give to the fields of a recipe's optimizer."""
    kind = word_at(values, "optimizer.kind", KINDS)
    strong, frozen = strong_augmentation(values), freezes_norm(facts, values)
    common: Rulings = {
        "optimizer.lr": learning_rate(facts, kind, frozen_norm=frozen),
        "optimizer.scaling": scaling(kind),
        "optimizer.weight_decay": weight_decay(facts, kind, strong_augmentation=strong),
    }
    leap: Rulings = {"optimizer.momentum": momentum(facts), "optimizer.nesterov": nesterov(facts)}
    match kind:
        case "sgd":
            return {**common, **leap}
        case "adam_then_sgd":
            decay = weight_decay(facts, "sgd", strong_augmentation=strong)
            rate = learning_rate(facts, "sgd", frozen_norm=frozen)
            return {**common, "optimizer.sgd_lr": rate, **leap, "optimizer.sgd_weight_decay": decay}
        case "rmsprop" | "adam" | "adamw" | "adadelta" | "lars" | "lamb" | "timm":
            return common
        case _:
            assert_never(kind)


# --- the rate -----------------------------------------------------------------------------------------


def scaling(kind: OptimizerKind) -> Ruling[str]:
    """Return how the rate follows the batch."""
    match kind:
        case "sgd":
            reason = "lr grows with the batch"
            return Ruling("linear", reason, "000:25, 003:23; arXiv 1706.02677, section 2.1")
        case "lars":
            return Ruling("linear", "lr grows with the batch, as SGD's", "arXiv 2002.05709, section 2.3")
        case "rmsprop" | "adam" | "adamw" | "lamb" | "adam_then_sgd" | "timm":
            return Ruling("sqrt", "adaptive rates grow with the root of the batch", "arXiv 2205.10287")
        case "adadelta":
            return Ruling("none", "the rate is a factor on steps in the weights' units", "arXiv 1212.5701")
        case _:
            assert_never(kind)


def learning_rate(facts: Facts, kind: OptimizerKind, *, frozen_norm: bool = False) -> Ruling[float]:
    """Return the rate at batch 256.
    If a sweep over rates was made, it lies within what the sweep recommends."""
    rule = rules_of(facts.task).rate(facts, kind, frozen_norm)
    band = _band(facts, kind)
    if band is None or band[0] <= rule.what <= band[1]:
        return rule
    low, high = band
    clipped = min(max(rule.what, low), high)
    reason = f"{rule.reason}, but {clipped:g} is the nearest that a sweep over rates recommends"
    return Ruling(clipped, reason, f"{rule.source}; {_SWEEP}", unswept=rule.what)


@heuristic(
    "The rate at batch 256 lies around the documents' number, and higher in runs that see few images.",
    page="learning-rate.md",
)
def learning_rates(facts: Facts, values: Values, kind: OptimizerKind) -> Distribution:
    task = rules_of(facts.task)
    plain, rule = task.rate(facts, kind, False), task.rate(facts, kind, freezes_norm(facts, values))
    factor = task.short_run_factor(facts, kind)
    if (band := _band(facts, kind)) is not None:
        return _rates_of_sweep(band, rounded(rule.what * factor), kind)
    confidence: Confidence = "high" if task.rate_is_sure(facts, kind) else "medium"
    domain, _ = around(plain.what * factor, DECADES, confidence)
    least = DOCUMENTS_TUNED_RATE if facts.pretrained and kind == "sgd" else plain.what
    domain = Float(min(domain.low, plain.what, least), domain.high, log=True)  # also the documents' own
    moved = f"; x{factor:.2g} in such a short run" if factor > 1.0 else ""
    prior = Normal(rule.what * factor, confidence)
    return Distribution(domain, prior, f"{rule.reason}{moved}", f"{rule.source}; the factors are ours")


def _rates_of_sweep(band: tuple[float, float], rule: float, kind: str) -> Distribution:
    low, high = band
    middle = (low * high) ** 0.5
    around_middle, prior = around(middle, DECADES, "high")
    domain = Float(min(around_middle.low, low), max(around_middle.high, high), log=True)
    position = "below" if rule < low else "above" if rule > high else "within"
    reason = f"a sweep recommends {low:g} to {high:g} for {kind}; the rule's {rule:g} lies {position}"
    return Distribution(domain, prior, reason, _SWEEP)


def _band(facts: Facts, kind: OptimizerKind) -> tuple[float, float] | None:
    """Return what a sweep recommends if it was made with this optimizer:
    rates of others differ by decades."""
    return facts.lr_band if kind == (facts.lr_band_kind or optimizer(facts).what) else None


# --- momentum and decay -------------------------------------------------------------------------------


def momentum(facts: Facts) -> Ruling[float]:
    """Return SGD's momentum."""
    return Ruling(0.9, "SGD with momentum; 0.9 is the papers' value", "003:4; arXiv 1706.02677, section 5.1")


@heuristic("SGD's momentum lies around 0.9, the papers' value.", page="optimizers.md")
def momenta(facts: Facts, values: Values) -> Distribution:
    reason = "0.9 is the papers' value; a rate's effect grows as 1 / (1 - momentum)"
    source = "003:4; arXiv 1706.02677, section 5.1; the range is ours"
    return Distribution(Float(0.8, 0.98), Normal(0.9, "medium"), reason, source)


def nesterov(facts: Facts) -> Ruling[bool]:
    """Return whether SGD's momentum is Nesterov's."""
    return Ruling(True, "looks ahead along the momentum", "arXiv 1706.02677, section 5.1")


def weight_decay(facts: Facts, kind: OptimizerKind, *, strong_augmentation: bool = False) -> Ruling[float]:
    """Return the decay that the documents of the task give to an optimizer."""
    return rules_of(facts.task).decay(facts, kind, strong_augmentation)


@heuristic(
    "SGD's weight decay follows the model's size, the number of images and the augmentation drawn.",
    page="weight-decay.md",
)
def weight_decays(facts: Facts, values: Values, kind: OptimizerKind) -> Distribution:
    strong = strong_augmentation(values)
    rule = weight_decay(facts, kind, strong_augmentation=strong)
    domain, _ = around(weight_decay(facts, kind).what, DECADES, "medium")
    confidence: Confidence = "medium" if kind in ("sgd", "lars") else "low"
    return Distribution(domain, Normal(rule.what, confidence), rule.reason, rule.source)


def strong_augmentation(values: Values) -> bool:
    """Return whether a policy distorts images or they are mixed:
    a harder task, which needs less decay (003:33)."""
    return any(values[f"augmentation.{part}.kind"] != "none" for part in ("policy", "mixing"))


# --- timm's optimizers --------------------------------------------------------------------------------


@heuristic(
    "From scratch, short runs with one of timm's optimizers mostly take Muon, long ones NAdamW as often.",
    page="optimizers.md",
    silent="for a model with pretrained weights: NAdamW stands alone there",
)
def timm_names(facts: Facts, values: Values) -> Distribution | None:
    if facts.pretrained:
        return None
    short = 0.5 if facts.attention else 0.8
    muon = log_log_interpolated(images_seen(facts), (SHORT_RUN, short), (RUN_ON_IMAGENET, 0.5))
    domain, prior = weighted_choice(dict(zip(TIMM_NAMES, (1.0 - muon, muon), strict=True)))
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
def timm_rates(facts: Facts, values: Values) -> Distribution:
    found = learning_rates(facts, values, "timm")
    if values.get(TIMM_NAME) != MUON or facts.lr_band_kind == "timm" or not isinstance(found.prior, Normal):
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
def timm_decays(facts: Facts, values: Values) -> Distribution:
    rule = weight_decay(facts, "timm")
    domain, _ = around(rule.what, DECADES, "low")
    source = f"{rule.source}; arXiv 2502.16982, section 2.2"
    if values.get(TIMM_NAME) == MUON:
        return Distribution(domain, Normal(MUON_DECAY, "low"), "without decay Muon's weights grow", source)
    return Distribution(domain, Normal(rule.what, "low"), rule.reason, source)
