"""Holds the documents' rules for a model that starts from pretrained weights; others get no range.

Sources such as `001:100` are lines of the guides in docs/sources.md: 000 is the training tricks notes and
001 the PyTorch tuning guide.
"""

from __future__ import annotations

from spaces.domains import Float, Value, Values
from spaces.facts import Facts
from spaces.priors import Normal
from spaces.rules.rulings import (
    MILLION,
    Distribution,
    Ruling,
    Rulings,
    heuristic,
    log_log_interpolated,
    number_at,
    rounded,
    weighted_choice,
)

FEW_NORMALISED, MANY_NORMALISED = 8, 32
SMALL_NET, LARGE_NET = 5 * MILLION, 100 * MILLION
ADAPTIVE_RATES, SGD_RATES = (0.005, 0.0005), (0.1, 0.02)
"""Rates at batch 256 for small and for large nets; ours for the large ones."""
FROZEN_NORM_FACTOR = 0.3
"""Rates are lower by this factor with frozen BatchNorm: ours, measured with AdamW and EfficientNet-Lite0."""
_GAINED = "frozen BatchNorm gained 8 and 1 points on two sets and lost 1 on a third"
_FROZEN_NORM_SOURCE = "000:51; measured: docs/decisions/0026"
_NEW_ABOVE = "the layers above the backbone are new, and have ten times its rate"
_BACKBONE = "arXiv 1606.00915, section 4.1; 2105.15203"
_MASKS = "measured: benchmarks/results/segmentation-tricks.md"
FROZEN_NORM_OF_MASKS = 0.15
"""BatchNorm is frozen in this share of the trials of a segmentation."""
FROZEN = {0: 0.6, 1: 0.25, 2: 0.1, 5: 0.05}
"""The head alone is trained for so many epochs, with these probabilities."""


def tuned_rate(facts: Facts, kind: str, from_scratch: float, *, frozen_norm: bool = False) -> Ruling[float]:
    """Return the rate at batch 256 from pretrained weights, for an optimizer whose rate from scratch is
    known.

    Measured with EfficientNet-Lite0 (3.4 M parameters) at batch 32, on 10 sets of 300 to 3,000 images of four
    kinds, three of them enlarged to 64 px, 4 to 10 epochs, n=1 a rate (benchmarks/results/tuning-grid.md):
    the best applied rates were 0.001 to 0.01 for AdamW and 0.01 to 0.03 for SGD. The documents' 0.001 for SGD
    at 256 (003:88) is 100 times less, and stays in the range. Transformers are tuned at lower rates.
    """
    small, large = SGD_RATES if kind in ("sgd", "lars") else ADAPTIVE_RATES
    if facts.attention:
        rate = 0.01 if kind in ("sgd", "lars") else from_scratch / 10
        return Ruling(rate, "transformers are tuned at lower rates", "arXiv 2106.10270; the numbers are ours")
    if kind == "adadelta":
        return Ruling(from_scratch, "Adadelta finds its step itself", "arXiv 1212.5701, section 3")
    rate = rounded(log_log_interpolated(facts.parameters, (SMALL_NET, small), (LARGE_NET, large)))
    reason = f"{small:g} for nets of 5 M parameters, {large:g} for 100 M; the documents' 0.001 hardly trains"
    if frozen_norm:
        rate = rounded(rate * FROZEN_NORM_FACTOR)
        reason = f"{reason}; x{FROZEN_NORM_FACTOR:g} with frozen BatchNorm"
    return Ruling(rate, reason, "measured: docs/decisions/0026; 003:88; the large nets' are ours")


@heuristic(
    "The head alone is trained first in 4 of 10 trials.",
    """
    The documents freeze all but the classifier until the model is at a good point, then train every layer
    (001:100); they do not say when that is. In short runs of 1,000 to 2,000 images one such epoch changed the
    accuracy by -0.8 points (-3.5 to +0.9) on photographs, by -0.5 (-2.5 to +0.5) on clothes (n=3 seeds each)
    and by -2.3 (-3.4 to -1.2) on microscope images (n=2; benchmarks/results/tuning-grid.md), where the head
    begins small and spoils nothing. The shares are ours. It is at most half of the run. {silent}
    """,
    silent="for a model without pretrained weights, and in runs of one epoch",
)
def frozen_epochs(facts: Facts, values: Values) -> Distribution | None:
    if not facts.pretrained:
        return None
    epochs: dict[Value, float] = {each: share for each, share in FROZEN.items() if 2 * each <= facts.epochs}
    if len(epochs) < 2:
        return None
    domain, prior = weighted_choice(epochs)
    reason = "the head first, then all, gained nothing in short runs; the documents ask for it"
    return Distribution(domain, prior, reason, "001:100; arXiv 1801.06146, section 3.3; the shares are ours")


@heuristic(
    "The rate falls from the head to the stem in equal ratios in half of the trials.",
    """
    The first layers hold edges and shapes that transfer, and should change least (001:102). One rate for all
    is what most published recipes take, so it has a quarter of the trials, as has a factor for each layer.
    In a segmentation the backbone alone is pretrained: it has a rate of its own, below that of the decoder
    and the head, in 4 of 10 trials, and one rate is for all in as many. A tenth changed the mean IoU by -0.2
    ± 0.1 points on nuclei, and by -7.1 ± 0.3 on made shapes, which are no photographs (n=3 seeds, 40 epochs,
    benchmarks/results/segmentation-tricks.md). {silent}
    """,
    silent="for a model without pretrained weights",
)
def layer_rates(facts: Facts, values: Values) -> Distribution | None:
    if not facts.pretrained:
        return None
    if facts.dense:
        domain, prior = weighted_choice({"backbone": 0.4, "uniform": 0.4, "geometric": 0.2})
        return Distribution(domain, prior, _NEW_ABOVE, f"{_BACKBONE}; {_MASKS}; the shares are ours")
    domain, prior = weighted_choice({"uniform": 0.25, "geometric": 0.5, "decayed": 0.25})
    reason = "the first layers transfer, and should change least"
    return Distribution(domain, prior, reason, "001:102; arXiv 1801.06146, section 3.2; the shares are ours")


@heuristic(
    "The stem's rate is around a tenth of the head's; a hundredth to the whole is tried.",
    """
    The documents name no ratio (001:102); fastai's `fine_tune` gives the stem a hundredth. {silent}
    """,
    silent="for a model without pretrained weights",
)
def lowest_rates(facts: Facts, values: Values) -> Distribution | None:
    if not facts.pretrained:
        return None
    reason = "the head's rate is 1 to 100 times the stem's, around 10"
    return Distribution(
        Float(0.01, 1.0, log=True),
        Normal(0.1, "medium"),
        reason,
        "001:102; arXiv 1801.06146, section 3.2; fastai",
    )


@heuristic(
    "Each layer group's rate is around 0.75 times that of the group above; 0.65 to 0.9 is usual.",
    """
    {silent}
    """,
    silent="for a model without pretrained weights, and in a segmentation",
)
def layer_factors(facts: Facts, values: Values) -> Distribution | None:
    if not facts.pretrained:
        return None
    reason = "0.65 to 0.9 from layer to layer is usual for transformers"
    return Distribution(
        Float(0.5, 1.0), Normal(0.75, "medium"), reason, "001:102; arXiv 2003.10555; the centre is ours"
    )


def backbone_rates(facts: Facts) -> Rulings:
    """Return that the backbone of a segmentation has a lower rate than what is new above it."""
    if not (facts.dense and facts.pretrained):
        return {}
    return {"model.layer_rates.kind": Ruling("backbone", _NEW_ABOVE, _BACKBONE)}


def backbone_factor(facts: Facts) -> Ruling[float]:
    """Return the backbone's rate over that of what is new above it."""
    return Ruling(0.1, _NEW_ABOVE, _BACKBONE)


@heuristic(
    "In a segmentation the pretrained backbone's rate is around a tenth of that of the layers above it.",
    """
    DeepLab gives the new layer ten times the rate (arXiv 1606.00915, section 4.1), and so does SegFormer's
    code. DeepLabv3 has one rate for all (arXiv 1706.05587), so a hundredth to the whole is tried. {silent}
    """,
    silent="for a model without pretrained weights, and in a classification",
)
def backbone_factors(facts: Facts, values: Values) -> Distribution | None:
    if not facts.pretrained:
        return None
    rule = backbone_factor(facts)
    domain, prior = Float(0.01, 1.0, log=True), Normal(rule.what, "medium")
    return Distribution(domain, prior, rule.reason, rule.source)


@heuristic(
    "BatchNorm is frozen in 6 of 10 trials, in 8 of 10 where 8 images are normalised at once, and in 3 of 20 "
    "of a segmentation.",
    """
    Its statistics, scale and shift stay those of the weights. The documents gained 1.3 % by this in
    segmentation, with its small batches (000:51). Here the first trial does it, too: with EfficientNet-Lite0
    at 96 px, batch 32 and 3 epochs of AdamW it gained 8.4 points (8.0 to 8.8) of test accuracy on 1,000
    photographs and 1.0 (-0.2 to +1.8) on 1,000 microscope images, and lost 1.0 (0.6 to 1.6) on 1,442
    photographs of signs (n=3 seeds each, benchmarks/results/finetuning.md), all normalised as the weights
    know them. A frozen BatchNorm does not scale activations back when weights grow, so high rates harm
    sooner: at the rate without it the three changed by -45.3, -1.5 and -0.3. So it is drawn before the rate,
    which lies around 0.3 times that. Where a person wrote the rate, the first trial leaves BatchNorm as it
    is. In a segmentation it lost 4.4 ± 0.7 points of mean IoU on nuclei and 11.1 ± 2.2 on made shapes, in
    batches of 8 (n=3 seeds, benchmarks/results/segmentation-tricks.md), so it is rare there; the first trial
    keeps it, as the documents ask for it. There the rate is as without it, since the decoder's BatchNorm is
    not frozen. The shares are ours.
    {silent}
    """,
    silent="for a model without pretrained weights or without BatchNorm, or with attention",
)
def frozen_norms(facts: Facts, values: Values) -> Distribution | None:
    if not _has_norm(facts):
        return None
    if facts.dense:
        domain, prior = weighted_choice({False: 1.0 - FROZEN_NORM_OF_MASKS, True: FROZEN_NORM_OF_MASKS})
        reason = "the documents gained 1.3 % in segmentation, and short runs here lost"
        return Distribution(domain, prior, reason, f"000:51; {_MASKS}; the shares are ours")
    images = _images_at_once(facts, values)
    on = log_log_interpolated(images, (FEW_NORMALISED, 0.8), (MANY_NORMALISED, 0.6))
    domain, prior = weighted_choice({False: 1.0 - on, True: on})
    few = f", and {images:.0f} images at once make poor statistics" if images < MANY_NORMALISED else ""
    source = f"{_FROZEN_NORM_SOURCE}; the shares are ours"
    return Distribution(domain, prior, f"{_GAINED}{few}", source)


def frozen_norm(facts: Facts) -> Rulings:
    """Return that the documented recipe freezes BatchNorm, where the weights bring one."""
    if not _has_norm(facts):
        return {}
    if facts.dense:
        reason = "frozen BatchNorm gained 1.3 % in the documents' segmentation, and lost in short runs here"
        return {"model.freeze_norm": Ruling(True, reason, f"000:51; {_MASKS}")}
    return {"model.freeze_norm": Ruling(True, _GAINED, _FROZEN_NORM_SOURCE)}


def _has_norm(facts: Facts) -> bool:
    return facts.pretrained and facts.batch_norm and not facts.attention


def freezes_norm(facts: Facts, values: Values) -> bool:
    """Return whether a trial with these values freezes the BatchNorm that its weights bring."""
    return _has_norm(facts) and values.get("model.freeze_norm") is True


def _images_at_once(facts: Facts, values: Values) -> float:
    caps = [number_at(values, "loop.batch_size") / facts.workers]
    written: Value = values["loop.micro_batch"]
    caps += [float(each) for each in (written, facts.largest_micro_batch) if isinstance(each, int)]
    return min(caps)
