"""How weights follow gradients. Every rate is at batch 256; `scaling` says how it follows the batch.

Linear scaling is Goyal et al.'s for SGD (arXiv 1706.02677, section 2.1), the square root Malladi et al.'s for
adaptive optimizers (arXiv 2205.10287).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self, assert_never

from pydantic import Field, model_validator

from trainable.recipe.base import OpenFraction, Spec

Positive = Annotated[float, Field(gt=0.0)]
Decay = Annotated[float, Field(ge=0.0)]
Scaling = Literal["linear", "sqrt", "none"]
SPARED = "off: Bag of Tricks (1812.01187), section 3.1"


def batch_factor(scaling: Scaling, ratio: float) -> float:
    """What a rate at batch 256 is multiplied by at a batch that is `ratio` times as large."""
    match scaling:
        case "linear":
            return ratio
        case "sqrt":
            return math.sqrt(ratio)
        case "none":
            return 1.0
        case _:
            assert_never(scaling)


class SGD(Spec):
    """Stochastic gradient descent with momentum; the decay is L2, as in torch.optim.SGD."""

    kind: Literal["sgd"] = "sgd"
    lr: Positive = Field(0.1, description="at batch 256 (1706.02677, section 2.1)")
    scaling: Scaling = "linear"
    momentum: OpenFraction = 0.9
    nesterov: bool = True
    weight_decay: Decay = 1e-4
    decay_norm_and_bias: bool = Field(False, description=SPARED)

    @model_validator(mode="after")
    def nesterov_needs_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0.0:
            raise ValueError("nesterov needs momentum above 0")
        return self


class RMSProp(Spec):
    """The gradient over the root of its mean square (Tieleman and Hinton 2012, lecture 6.5); L2 decay.

    Momentum, smoothing and decay are those of MobileNetV3 (arXiv 1905.02244, section 6.1).
    """

    kind: Literal["rmsprop"] = "rmsprop"
    lr: Positive = 1e-3
    scaling: Scaling = "sqrt"
    momentum: OpenFraction = 0.9
    alpha: OpenFraction = Field(0.9, description="memory of the gradient's square")
    eps: Positive = 1e-8
    weight_decay: Decay = 1e-5
    decay_norm_and_bias: bool = Field(False, description=SPARED)


class Adam(Spec):
    """Adam (arXiv 1412.6980); a decay is L2, which its scaling distorts: AdamW's is not."""

    kind: Literal["adam"] = "adam"
    lr: Positive = 1e-3
    scaling: Scaling = "sqrt"
    beta1: OpenFraction = 0.9
    beta2: OpenFraction = 0.999
    eps: Positive = 1e-8
    weight_decay: Decay = 0.0
    decay_norm_and_bias: bool = Field(False, description=SPARED)


class AdamW(Spec):
    """Adam with decoupled weight decay (arXiv 1711.05101)."""

    kind: Literal["adamw"] = "adamw"
    lr: Positive = Field(1e-3, description="at batch 256")
    scaling: Scaling = Field("sqrt", description="arXiv 2205.10287")
    beta1: OpenFraction = 0.9
    beta2: OpenFraction = 0.999
    eps: Positive = 1e-8
    weight_decay: Decay = 0.02
    decay_norm_and_bias: bool = Field(False, description=SPARED)


class Adadelta(Spec):
    """Steps in the units of the weights (arXiv 1212.5701): the rate is a factor, 1 as in the paper."""

    kind: Literal["adadelta"] = "adadelta"
    lr: Positive = 1.0
    scaling: Scaling = "none"
    rho: OpenFraction = 0.9
    eps: Positive = 1e-6
    weight_decay: Decay = 0.0
    decay_norm_and_bias: bool = Field(False, description=SPARED)


class LARS(Spec):
    """SGD whose rate is scaled a layer at a time by |w| / |g|, for large batches (arXiv 1708.03888).

    Weights that do not decay (biases, normalisations) take plain steps. 0.3 at batch 256: arXiv 2002.05709,
    section 2.3.
    """

    kind: Literal["lars"] = "lars"
    lr: Positive = 0.3
    scaling: Scaling = "linear"
    momentum: OpenFraction = 0.9
    nesterov: bool = False
    trust: Positive = Field(1e-3, description="the paper's eta")
    weight_decay: Decay = 1e-4
    decay_norm_and_bias: bool = Field(False, description=SPARED)


class LAMB(Spec):
    """Adam whose step is scaled a layer at a time to |w|, for large batches (arXiv 1904.00962).

    0.005 at batch 2,048 and the decay are those of arXiv 2110.00476, table 2.
    """

    kind: Literal["lamb"] = "lamb"
    lr: Positive = 1.8e-3
    scaling: Scaling = "sqrt"
    beta1: OpenFraction = 0.9
    beta2: OpenFraction = 0.999
    eps: Positive = 1e-6
    weight_decay: Decay = 0.02
    decay_norm_and_bias: bool = Field(False, description=SPARED)


class AdamThenSGD(Spec):
    """AdamW for speed, then SGD with momentum for the last accuracy (arXiv 1712.07628 gives the idea).

    The switch is at a fraction of the epochs, on a step; SGD begins with an empty momentum and its own rate,
    both under the one schedule.
    """

    kind: Literal["adam_then_sgd"] = "adam_then_sgd"
    lr: Positive = Field(1e-3, description="Adam's, at batch 256")
    scaling: Scaling = Field("sqrt", description="of Adam's rate; SGD's scales linearly unless this is none")
    beta1: OpenFraction = 0.9
    beta2: OpenFraction = 0.999
    eps: Positive = 1e-8
    weight_decay: Decay = Field(0.02, description="Adam's, decoupled")
    switch_at: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(0.5, description="fraction of the run")
    sgd_lr: Positive = Field(0.1, description="SGD's, at batch 256")
    momentum: OpenFraction = 0.9
    nesterov: bool = True
    sgd_weight_decay: Decay = Field(1e-4, description="SGD's, L2")
    decay_norm_and_bias: bool = Field(False, description=SPARED)

    @model_validator(mode="after")
    def nesterov_needs_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0.0:
            raise ValueError("nesterov needs momentum above 0")
        return self


Optimizer = Annotated[
    SGD | RMSProp | Adam | AdamW | Adadelta | LARS | LAMB | AdamThenSGD, Field(discriminator="kind")
]
