"""How weights follow gradients.

Every rate is at batch 256; `scaling` says how it follows the batch.

Linear scaling is Goyal et al.'s for SGD (arXiv 1706.02677, section 2.1), the square root Malladi et al.'s for
adaptive optimizers (arXiv 2205.10287).

Sources such as `003:26` are lines of the guides in docs/sources.md: 000 is the training tricks notes, 001
the PyTorch tuning guide, 002 the PyTorch speed notes, 003 the PaddleClas guide and 004 the 17 ways guide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, TypeVar, assert_never

from pydantic import Field, model_validator

from trainable.recipe.base import ArgumentName, OpenFraction, Purpose, Spec

Positive = Annotated[float, Field(gt=0.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
Scaling = Literal["linear", "sqrt", "none"]

# The fields that several optimizers have, each with its one purpose.
_ADAM = "arXiv 1412.6980, section 2"
LearningRate = Annotated[Positive, Purpose("at batch 256", "003:13, 003:23; arXiv 1706.02677, section 2.1")]
RateScaling = Annotated[
    Scaling, Purpose("how the rate follows the batch", "000:25, 003:23; arXiv 2205.10287")
]
Momentum = Annotated[
    OpenFraction, Purpose("share of the last step in the next", "003:4; arXiv 1905.02244, 1708.03888")
]
Nesterov = Annotated[bool, Purpose("looks ahead along the momentum", "arXiv 1706.02677, section 5.1")]
Beta1 = Annotated[OpenFraction, Purpose("memory of the mean gradient", _ADAM)]
Beta2 = Annotated[OpenFraction, Purpose("memory of the gradient's square", _ADAM)]
Eps = Annotated[Positive, Purpose("keeps the division finite", f"{_ADAM}; 1212.5701, section 3")]
WeightDecay = Annotated[NotNegative, Purpose("pull of the weights to zero", "003:26-40; arXiv 1711.05101")]
DecayNormAndBias = Annotated[
    bool, Purpose("whether norms and biases decay too", "arXiv 1812.01187, section 3.1")
]

Value = TypeVar("Value")
OPTIMIZER_KIND, OPTIMIZER_NAME = "optimizer.kind", "optimizer.name"
NesterovOptimizer = TypeVar("NesterovOptimizer", "SGD", "AdamThenSGD")


def batch_factor(scaling: Scaling, ratio: float) -> float:
    """Return the factor on a rate at batch 256 for a batch that is `ratio` times as large."""
    match scaling:
        case "linear":
            return ratio
        case "sqrt":
            return math.sqrt(ratio)
        case "none":
            return 1.0
        case _:
            assert_never(scaling)


def with_momentum(optimizer: NesterovOptimizer) -> NesterovOptimizer:
    """Return the optimizer unchanged. Raises ValueError if it looks ahead along a momentum of 0."""
    if optimizer.nesterov and optimizer.momentum == 0.0:
        raise ValueError("nesterov needs momentum above 0")
    return optimizer


class SGD(Spec):
    """Stochastic gradient descent with momentum; the decay is L2, as in torch.optim.SGD."""

    title: ClassVar[str] = "SGD"

    kind: Literal["sgd"] = "sgd"
    lr: LearningRate = 0.1
    scaling: RateScaling = "linear"
    momentum: Momentum = 0.9
    nesterov: Nesterov = True
    weight_decay: WeightDecay = 1e-4
    decay_norm_and_bias: DecayNormAndBias = False

    nesterov_needs_momentum = model_validator(mode="after")(with_momentum)


class RMSProp(Spec):
    """The gradient over the root of its mean square (Tieleman and Hinton 2012, lecture 6.5); L2 decay.

    Momentum, smoothing and decay are those of MobileNetV3 (arXiv 1905.02244, section 6.1).
    """

    title: ClassVar[str] = "RMSProp"

    kind: Literal["rmsprop"] = "rmsprop"
    lr: LearningRate = 1e-3
    scaling: RateScaling = "sqrt"
    momentum: Momentum = 0.9
    alpha: Annotated[
        OpenFraction, Purpose("memory of the gradient's square", "arXiv 1905.02244, section 6.1")
    ] = 0.9
    eps: Eps = 1e-8
    weight_decay: WeightDecay = 1e-5
    decay_norm_and_bias: DecayNormAndBias = False


class Adam(Spec):
    """Adam (arXiv 1412.6980), whose decay is L2, which its scaling distorts: AdamW's is not."""

    title: ClassVar[str] = "Adam"

    kind: Literal["adam"] = "adam"
    lr: LearningRate = 1e-3
    scaling: RateScaling = "sqrt"
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    eps: Eps = 1e-8
    weight_decay: WeightDecay = 0.0
    decay_norm_and_bias: DecayNormAndBias = False


class AdamW(Spec):
    """Adam with decoupled weight decay (arXiv 1711.05101)."""

    title: ClassVar[str] = "AdamW"

    kind: Literal["adamw"] = "adamw"
    lr: LearningRate = 1e-3
    scaling: RateScaling = "sqrt"
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    eps: Eps = 1e-8
    weight_decay: WeightDecay = 0.02
    decay_norm_and_bias: DecayNormAndBias = False


class Adadelta(Spec):
    """Steps in the units of the weights (arXiv 1212.5701): the rate is a factor, 1 in the paper."""

    title: ClassVar[str] = "Adadelta"

    kind: Literal["adadelta"] = "adadelta"
    lr: LearningRate = 1.0
    scaling: RateScaling = "none"
    rho: Annotated[
        OpenFraction, Purpose("memory of the squares of gradients and steps", "arXiv 1212.5701, section 3")
    ] = 0.9
    eps: Eps = 1e-6
    weight_decay: WeightDecay = 0.0
    decay_norm_and_bias: DecayNormAndBias = False


class LARS(Spec):
    """SGD whose rate is scaled layer by layer by |w| / |g|, for large batches (arXiv 1708.03888).

    Weights that do not decay (biases, normalisations) take plain steps. 0.3 at batch 256: arXiv 2002.05709,
    section 2.3.
    """

    title: ClassVar[str] = "LARS"

    kind: Literal["lars"] = "lars"
    lr: LearningRate = 0.3
    scaling: RateScaling = "linear"
    momentum: Momentum = 0.9
    nesterov: Nesterov = False
    trust: Annotated[
        Positive, Purpose("a layer's step over the length of its weights: eta", "arXiv 1708.03888")
    ] = 1e-3
    weight_decay: WeightDecay = 1e-4
    decay_norm_and_bias: DecayNormAndBias = False


class LAMB(Spec):
    """Adam whose step is scaled layer by layer to |w|, for large batches (arXiv 1904.00962).

    0.005 at batch 2,048 and the decay are those of arXiv 2110.00476, table 2.
    """

    title: ClassVar[str] = "LAMB"

    kind: Literal["lamb"] = "lamb"
    lr: LearningRate = 1.8e-3
    scaling: RateScaling = "sqrt"
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    eps: Eps = 1e-6
    weight_decay: WeightDecay = 0.02
    decay_norm_and_bias: DecayNormAndBias = False


class AdamThenSGD(Spec):
    """AdamW for speed, then SGD with momentum for the last accuracy (arXiv 1712.07628 gives the idea).

    The switch is at a fraction of the epochs, on a step; SGD begins with an empty momentum and its own rate,
    both under the one schedule. `lr`, `scaling` and the decoupled `weight_decay` are Adam's. SGD's rate
    scales linearly unless `scaling` is none, and its decay is L2.
    """

    title: ClassVar[str] = "AdamW, then SGD"

    kind: Literal["adam_then_sgd"] = "adam_then_sgd"
    lr: LearningRate = 1e-3
    scaling: RateScaling = "sqrt"
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    eps: Eps = 1e-8
    weight_decay: WeightDecay = 0.02
    switch_at: Annotated[
        float,
        Field(gt=0.0, lt=1.0),
        Purpose("part of the run after which SGD takes over", "001:138; arXiv 1712.07628"),
    ] = 0.5
    sgd_lr: Annotated[
        Positive, Purpose("SGD's learning rate after the switch, at batch 256", "001:138, 003:13, 003:23")
    ] = 0.1
    momentum: Momentum = 0.9
    nesterov: Nesterov = True
    sgd_weight_decay: Annotated[
        NotNegative, Purpose("SGD's pull of the weights to zero", "001:138, 003:26-40")
    ] = 1e-4
    decay_norm_and_bias: DecayNormAndBias = False

    nesterov_needs_momentum = model_validator(mode="after")(with_momentum)


# How optimizers of timm's are written by those who made them; others are called as timm calls them
TIMM_TITLES = {"adan": "Adan", "lion": "Lion", "muon": "Muon", "nadam": "NAdam", "nadamw": "NAdamW"}
OptimizerOption = bool | int | float | str | tuple[float, ...]


class Timm(Spec):
    """One of timm's optimizers, by timm's name: nadamw, muon, adan, lion, ...

    Its decay is decoupled or L2, as timm's class has it. `options` holds what else the class takes, such as
    {betas: [0.9, 0.98]}; what it leaves out is as timm has it. Muon updates matrices and convolutions, and
    the rest by AdamW at the same rate.
    """

    kind: Literal["timm"] = "timm"
    name: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9_]{1,60}$"),
        Purpose("which of timm's optimizers", "timm's documentation; arXiv 2306.07179, 2502.16982"),
    ] = "nadamw"
    lr: LearningRate = 1e-3
    scaling: RateScaling = "sqrt"
    weight_decay: WeightDecay = 0.02
    options: Annotated[
        dict[ArgumentName, OptimizerOption],
        Field(max_length=20),
        Purpose("what else timm's class takes", "timm's documentation"),
    ] = Field(default_factory=dict)
    decay_norm_and_bias: DecayNormAndBias = False

    @property
    def title(self) -> str:
        """The optimizer's own name."""
        return TIMM_TITLES.get(self.name, self.name)


def by_own_name(values: Mapping[str, Value], named: object = None) -> dict[str, Value | str]:
    """Return values of a recipe by dotted path in which an optimizer of timm's is called by its own name,
    `muon`, and not `timm`; `named` is that name where the values do not have it."""
    name = values.get(OPTIMIZER_NAME, named)
    first = next((path for path in (OPTIMIZER_KIND, OPTIMIZER_NAME) if path in values), None)
    if first is None or values.get(OPTIMIZER_KIND, "timm") != "timm" or not isinstance(name, str):
        return dict(values)
    found: dict[str, Value | str] = {}
    for path, value in values.items():
        if path == first:
            found[OPTIMIZER_KIND] = name
        elif path != OPTIMIZER_NAME:
            found[path] = value
    return found


Optimizer = Annotated[
    SGD | RMSProp | Adam | AdamW | Adadelta | LARS | LAMB | AdamThenSGD | Timm,
    Field(discriminator="kind"),
    Purpose(
        "SGD with momentum for accuracy, AdamW for speed, LARS and LAMB for large batches, timm for others",
        "003:4, 001:136-138, 002:22, 004:83-87",
    ),
]
