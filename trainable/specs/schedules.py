"""The learning rate's shape over a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainable.specs.base import Fraction, Spec


class ScheduleSpec(Spec):
    """Every schedule is a factor on the rate: linear warm-up, then the shape over what is left of the run."""

    warmup_epochs: Annotated[float, Field(ge=0.0)] = 0.0


class Constant(ScheduleSpec):
    kind: Literal["constant"] = "constant"


class Cosine(ScheduleSpec):
    """Half a cosine from 1 to `final_factor` (arXiv 1608.03983, without restarts)."""

    kind: Literal["cosine"] = "cosine"
    final_factor: Fraction = 0.0


class Step(ScheduleSpec):
    """Times `gamma` after every `every` of the run; x0.1 at 30, 60, 90 of 120 epochs by default."""

    kind: Literal["step"] = "step"
    every: Annotated[float, Field(gt=0.0, le=1.0)] = Field(0.25, description="fraction of the run")
    gamma: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1


class Poly(ScheduleSpec):
    """(1 - progress) to the `power`."""

    kind: Literal["poly"] = "poly"
    power: Annotated[float, Field(gt=0.0)] = 1.0


class Exponential(ScheduleSpec):
    """Times `gamma` an epoch, continuously."""

    kind: Literal["exp"] = "exp"
    gamma: Annotated[float, Field(gt=0.0, le=1.0)] = 0.95


Schedule = Annotated[Constant | Cosine | Step | Poly | Exponential, Field(discriminator="kind")]
