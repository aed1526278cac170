"""The learning rate's shape over a run.

Sources such as `003:13` are lines of the guides in docs/sources.md: 000 is the training tricks notes, 001
the PyTorch tuning guide, 002 the PyTorch speed notes, 003 the PaddleClas guide and 004 the 17 ways guide.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from trainable.recipe.base import Fraction, OpenFraction, Purpose, Spec, check_ordered

RESTARTS = "001:130-189; arXiv 1608.03983, section 3"
ONE_CYCLE = "000:55, 001:136, 002:6; arXiv 1708.07120"
TRIANGLES = "001:136; arXiv 1506.01186, section 3"

# The fields that several schedules have, each with its one purpose.
FinalFactor = Annotated[
    Fraction, Purpose("where each cosine ends, as a share of the rate", "001:126; arXiv 1608.03983")
]
Gamma = Annotated[
    float, Field(gt=0.0, le=1.0), Purpose("factor of each fall, or of each epoch", "003:13; arXiv 1506.01186")
]


class ScheduleSpec(Spec):
    """A factor on the rate: a linear warm-up, then the schedule's shape over the rest of the run."""

    kind: str
    warmup_epochs: Annotated[
        float, Field(ge=0.0), Purpose("the rate rises from 0 first", "000:29, 003:20")
    ] = 0.0


class Constant(ScheduleSpec):
    title: ClassVar[str] = "constant rate"

    kind: Literal["constant"] = "constant"


class Cosine(ScheduleSpec):
    """A fall as half a cosine from 1 to `final_factor` (arXiv 1608.03983, without restarts)."""

    title: ClassVar[str] = "cosine"

    kind: Literal["cosine"] = "cosine"
    final_factor: FinalFactor = 0.0


class Step(ScheduleSpec):
    """A factor `gamma` after every `every` of the run; by default x0.1 at 30, 60, 90 of 120 epochs."""

    title: ClassVar[str] = "steps"

    kind: Literal["step"] = "step"
    every: Annotated[
        float, Field(gt=0.0, le=1.0), Purpose("part of the run from fall to fall: 30 of 120 epochs", "003:13")
    ] = 0.25
    gamma: Gamma = 0.1


class Poly(ScheduleSpec):
    """(1 - progress) to the `power`; 0.9 is usual for segmentation (arXiv 1606.00915, section 4.1)."""

    title: ClassVar[str] = "polynomial"

    kind: Literal["poly"] = "poly"
    power: Annotated[
        float, Field(gt=0.0), Purpose("1 falls in a straight line", "003:13; arXiv 1606.00915")
    ] = 1.0


class Exponential(ScheduleSpec):
    """A factor `gamma` in each epoch, continuously."""

    title: ClassVar[str] = "exponential"

    kind: Literal["exp"] = "exp"
    gamma: Gamma = 0.95


class SGDR(ScheduleSpec):
    """Cosines that start again at the whole rate, each cycle `growth` times as long (arXiv 1608.03983).

    Scores are comparable at the ends of cycles only, so that is where a search puts its rungs.
    """

    title: ClassVar[str] = "cosine with restarts"

    kind: Literal["sgdr"] = "sgdr"
    cycle_epochs: Annotated[float, Field(gt=0.0), Purpose("length of the first cycle: T_0", RESTARTS)] = 10.0
    growth: Annotated[
        int, Field(ge=1), Purpose("each cycle is so many times as long as the last: T_mult", RESTARTS)
    ] = 2
    final_factor: FinalFactor = 0.0


class OneCycle(ScheduleSpec):
    """A rise from 1 / `div`, a fall to 1 / (`div` x `final_div`), momentum the other way (arXiv 1708.07120).

    With `equal_legs` (arXiv 1803.09820, section 4.3) it comes down as fast as it went up, to where it began,
    and falls to the end in what is left: `rise` is then below a half.
    """

    title: ClassVar[str] = "one cycle"

    kind: Literal["onecycle"] = "onecycle"
    rise: Annotated[
        float, Field(gt=0.0, lt=1.0), Purpose("part of the run in which the rate rises", ONE_CYCLE)
    ] = 0.3
    div: Annotated[float, Field(ge=1.0), Purpose("the rate begins at 1 / div of its peak", ONE_CYCLE)] = 25.0
    final_div: Annotated[
        float, Field(ge=1.0), Purpose("the rate ends at 1 / final_div of where it began", ONE_CYCLE)
    ] = 1e4
    anneal: Annotated[Literal["cosine", "linear"], Purpose("the shape of the legs", ONE_CYCLE)] = "cosine"
    equal_legs: Annotated[
        bool,
        Purpose(
            "falls as fast as it rises, then to the end in the steps that remain",
            "004:23; arXiv 1803.09820, section 4.3",
        ),
    ] = False
    cycle_momentum: Annotated[
        bool,
        Purpose("momentum, or beta1, falls while the rate rises", ONE_CYCLE),
    ] = True
    momentum_low: Annotated[OpenFraction, Purpose("momentum at the highest rate", ONE_CYCLE)] = 0.85
    momentum_high: Annotated[OpenFraction, Purpose("momentum at the lowest rates", ONE_CYCLE)] = 0.95

    @model_validator(mode="after")
    def legs_fit(self) -> Self:
        if self.equal_legs and self.rise >= 0.5:
            raise ValueError(f"equal_legs needs rise below 0.5, got {self.rise:g}")
        check_ordered(momentum_low=self.momentum_low, momentum_high=self.momentum_high)
        return self


class Cyclic(ScheduleSpec):
    """Triangles between `lowest` and the whole rate (arXiv 1506.01186, section 3).

    `triangular2` halves the height every cycle, `exp_range` multiplies it by `gamma` an epoch.
    """

    title: ClassVar[str] = "cycles"

    kind: Literal["cyclic"] = "cyclic"
    mode: Annotated[
        Literal["triangular", "triangular2", "exp_range"], Purpose("how the triangles shrink", TRIANGLES)
    ] = "triangular"
    lowest: Annotated[Fraction, Purpose("the triangles' lower end, as a share of the rate", TRIANGLES)] = 0.1
    rise_epochs: Annotated[float, Field(gt=0.0), Purpose("half a cycle: 2 to 10 epochs", TRIANGLES)] = 4.0
    gamma: Gamma = 0.9


Schedule = Annotated[
    Constant | Cosine | Step | Poly | Exponential | SGDR | OneCycle | Cyclic,
    Field(discriminator="kind"),
    Purpose("the rate's shape over the run", "003:13, 000:27"),
]
