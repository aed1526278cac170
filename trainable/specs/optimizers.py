"""How weights follow gradients."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainable.specs.base import OpenFraction, Spec


class SGD(Spec):
    """Stochastic gradient descent with momentum; the decay is L2, as in torch.optim.SGD."""

    kind: Literal["sgd"] = "sgd"
    lr: Annotated[float, Field(gt=0.0)] = Field(0.1, description="at batch 256 (1706.02677, section 2.1)")
    scaling: Literal["linear", "sqrt", "none"] = "linear"
    momentum: OpenFraction = 0.9
    nesterov: bool = True
    weight_decay: Annotated[float, Field(ge=0.0)] = 1e-4
    decay_norm_and_bias: bool = Field(False, description="off: Bag of Tricks (1812.01187), section 3.1")

    @model_validator(mode="after")
    def nesterov_needs_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0.0:
            raise ValueError("nesterov needs momentum above 0")
        return self


class AdamW(Spec):
    """Adam with decoupled weight decay (arXiv 1711.05101)."""

    kind: Literal["adamw"] = "adamw"
    lr: Annotated[float, Field(gt=0.0)] = Field(1e-3, description="at batch 256")
    scaling: Literal["linear", "sqrt", "none"] = Field("sqrt", description="arXiv 2205.10287")
    beta1: OpenFraction = 0.9
    beta2: OpenFraction = 0.999
    eps: Annotated[float, Field(gt=0.0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.02
    decay_norm_and_bias: bool = False


Optimizer = Annotated[SGD | AdamW, Field(discriminator="kind")]
