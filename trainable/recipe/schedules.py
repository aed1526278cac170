"""The learning rate's shape over a run."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainable.recipe.base import Fraction, OpenFraction, Spec


class ScheduleSpec(Spec):
    """Every schedule is a factor on the rate: linear warm-up, then the shape over what is left of the run."""

    kind: str
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
    """(1 - progress) to the `power`; 0.9 is usual for segmentation (arXiv 1606.00915, section 4.1)."""

    kind: Literal["poly"] = "poly"
    power: Annotated[float, Field(gt=0.0)] = 1.0


class Exponential(ScheduleSpec):
    """Times `gamma` an epoch, continuously."""

    kind: Literal["exp"] = "exp"
    gamma: Annotated[float, Field(gt=0.0, le=1.0)] = 0.95


class SGDR(ScheduleSpec):
    """A cosine that starts again at the whole rate, each cycle `growth` times as long (arXiv 1608.03983).

    Scores are comparable at the ends of cycles only, so that is where a search puts its rungs.
    """

    kind: Literal["sgdr"] = "sgdr"
    cycle_epochs: Annotated[float, Field(gt=0.0)] = Field(10.0, description="of the first cycle: T_0")
    growth: Annotated[int, Field(ge=1)] = Field(2, description="T_mult")
    final_factor: Fraction = 0.0


class OneCycle(ScheduleSpec):
    """Up from 1 / `div`, down to 1 / (`div` x `final_div`), momentum the other way (arXiv 1708.07120).

    With `equal_legs` (arXiv 1803.09820, section 4.3) it comes down as fast as it went up, to where it began,
    and falls to the end in what is left: `rise` is then below a half.
    """

    kind: Literal["onecycle"] = "onecycle"
    rise: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(0.3, description="fraction of the run")
    div: Annotated[float, Field(ge=1.0)] = 25.0
    final_div: Annotated[float, Field(ge=1.0)] = 1e4
    anneal: Literal["cosine", "linear"] = "cosine"
    equal_legs: bool = False
    cycle_momentum: bool = Field(True, description="or beta1; from high to low and back")
    momentum_low: OpenFraction = 0.85
    momentum_high: OpenFraction = 0.95

    @model_validator(mode="after")
    def legs_fit(self) -> Self:
        if self.equal_legs and self.rise >= 0.5:
            raise ValueError(f"equal_legs needs rise below 0.5, got {self.rise:g}")
        if self.momentum_low > self.momentum_high:
            raise ValueError(
                f"momentum_low {self.momentum_low:g} is above momentum_high {self.momentum_high:g}"
            )
        return self


class Cyclic(ScheduleSpec):
    """Triangles between `lowest` and the whole rate (arXiv 1506.01186, section 3).

    `triangular2` halves the height every cycle, `exp_range` multiplies it by `gamma` an epoch.
    """

    kind: Literal["cyclic"] = "cyclic"
    mode: Literal["triangular", "triangular2", "exp_range"] = "triangular"
    lowest: Fraction = Field(0.1, description="of the rate")
    rise_epochs: Annotated[float, Field(gt=0.0)] = Field(4.0, description="half a cycle: 2 to 10 epochs")
    gamma: Annotated[float, Field(gt=0.0, le=1.0)] = Field(0.9, description="for exp_range")


Schedule = Annotated[
    Constant | Cosine | Step | Poly | Exponential | SGDR | OneCycle | Cyclic, Field(discriminator="kind")
]
