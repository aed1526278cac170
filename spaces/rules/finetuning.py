"""The documents' rules for a model that starts from pretrained weights; others get no range.

Sources such as `001:100` are lines of the guides in docs/sources.md: 000 is the training tricks notes and
001 the PyTorch tuning guide.
"""

from __future__ import annotations

from spaces.domains import Float, Value, Values
from spaces.facts import Backbone, Facts
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
# At batch 256, for small and for large nets; ours for the large ones
ADAPTIVE_RATES, SGD_RATES = (0.005, 0.0005), (0.1, 0.02)
FROZEN_NORM_FACTOR = 0.3  # of the rate: ours, measured with AdamW and EfficientNet-Lite0
LEAST_SIDE = 64  # in pixels: smaller images hold little that a network has learnt from photographs
_GAINED = "frozen BatchNorm gained 8 and 1 points on two sets and lost 1 on a third"
_FROZEN_NORM_SOURCE = "000:51; measured: docs/decisions/0026"
FROZEN = {0: 0.6, 1: 0.25, 2: 0.1, 5: 0.05}  # epochs for which the head alone is trained, and their shares


def tuned_rate(facts: Facts, kind: str, from_scratch: float, *, frozen_norm: bool = False) -> Ruling[float]:
    """Return the rate at batch 256 from pretrained weights, for an optimizer whose rate from scratch is
    known. Transformers are tuned at lower rates.

    One small network was measured on 10 sets (docs/rules/learning-rate.md#from-pretrained-weights).
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


def model(backbone: Backbone) -> dict[str, str]:
    """Return the section `model` of a search that names no network and starts from this one."""
    return {"kind": "timm", "name": backbone.name, "weights": backbone.weights}


@heuristic(
    "The head alone is trained first in 4 of 10 trials.",
    page="fine-tuning.md",
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
    page="fine-tuning.md",
    silent="for a model without pretrained weights",
)
def layer_rates(facts: Facts, values: Values) -> Distribution | None:
    if not facts.pretrained:
        return None
    domain, prior = weighted_choice({"uniform": 0.25, "geometric": 0.5, "decayed": 0.25})
    reason = "the first layers transfer, and should change least"
    return Distribution(domain, prior, reason, "001:102; arXiv 1801.06146, section 3.2; the shares are ours")


@heuristic(
    "The stem's rate is around a tenth of the head's; a hundredth to the whole is tried.",
    page="fine-tuning.md",
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
    silent="for a model without pretrained weights, and in a segmentation",
)
def layer_factors(facts: Facts, values: Values) -> Distribution | None:
    if not facts.pretrained:
        return None
    reason = "0.65 to 0.9 from layer to layer is usual for transformers"
    return Distribution(
        Float(0.5, 1.0), Normal(0.75, "medium"), reason, "001:102; arXiv 2003.10555; the centre is ours"
    )


@heuristic(
    "BatchNorm is frozen in 6 of 10 trials, and in 8 of 10 where 8 images are normalised at once.",
    page="fine-tuning.md",
    silent="for a model without pretrained weights or without BatchNorm, or with attention",
)
def frozen_norms(facts: Facts, values: Values) -> Distribution | None:
    if not has_norm(facts):
        return None
    images = _images_at_once(facts, values)
    on = log_log_interpolated(images, (FEW_NORMALISED, 0.8), (MANY_NORMALISED, 0.6))
    domain, prior = weighted_choice({False: 1.0 - on, True: on})
    few = f", and {images:.0f} images at once make poor statistics" if images < MANY_NORMALISED else ""
    source = f"{_FROZEN_NORM_SOURCE}; the shares are ours"
    return Distribution(domain, prior, f"{_GAINED}{few}", source)


def frozen_norm(facts: Facts) -> Rulings:
    """Freeze BatchNorm in the documented recipe, where the weights bring one."""
    if not has_norm(facts):
        return {}
    return {"model.freeze_norm": Ruling(True, _GAINED, _FROZEN_NORM_SOURCE)}


def has_norm(facts: Facts) -> bool:
    """Return whether the weights bring a BatchNorm that could be frozen."""
    return facts.pretrained and facts.batch_norm and not facts.attention


def freezes_norm(facts: Facts, values: Values) -> bool:
    """Return whether a trial with these values freezes the BatchNorm that its weights bring."""
    return has_norm(facts) and values.get("model.freeze_norm") is True


def _images_at_once(facts: Facts, values: Values) -> float:
    caps = [number_at(values, "loop.batch_size") / facts.workers]
    written: Value = values["loop.micro_batch"]
    caps += [float(each) for each in (written, facts.largest_micro_batch) if isinstance(each, int)]
    return min(caps)
