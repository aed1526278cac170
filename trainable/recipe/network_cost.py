"""What a network or a run costs where it trains and answers: parameters, memory, time, as probes measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from trainable.recipe.base import Spec


class NetworkCost(Spec):
    """What the network of a recipe costs on one device."""

    # All numbers that an optimizer could adjust, also those that are frozen
    parameters: Annotated[int, Field(ge=0)]
    # The time from one image to its answer, in evaluation mode and in the recipe's number format
    latency_ms: Annotated[float, Field(gt=0.0)]
    # What a process takes in a training step, with weights and optimizer: device memory, or a CPU's
    memory_gib: Annotated[float, Field(ge=0.0)]


class Footprint(Spec):
    """What a trial takes of a GPU: its memory, and the share of a step's time in which the GPU works."""

    trial_bytes: Annotated[int, Field(gt=0)]  # the most that its process takes, with CUDA's context
    free_bytes: Annotated[int, Field(gt=0)]  # on the GPU before that
    busy: Annotated[float, Field(gt=0.0, le=1.0)] | None = None  # None: the profiler recorded nothing

    def __str__(self) -> str:
        memory = f"{self.trial_bytes / 2**30:.1f} of {self.free_bytes / 2**30:.1f} GiB"
        works = "an unknown share" if self.busy is None else f"{100 * self.busy:.0f} %"
        return f"{memory}, and the GPU works {works} of a step's time"


class RunCost(Spec):
    """What a run of a recipe takes on one device, in seconds, as steps of it were timed."""

    training_seconds: tuple[Annotated[float, Field(ge=0.0)], ...]  # of each epoch
    scoring_seconds: Annotated[float, Field(ge=0.0)]  # of the validation part, after each epoch
    checkpoint_seconds: Annotated[float, Field(ge=0.0)]  # to write one, after each epoch
    checkpoint_bytes: Annotated[int, Field(ge=0)]
    starting_seconds: Annotated[float, Field(ge=0.0)]  # until its first step

    def seconds(self, begin: int, end: int) -> float:
        """Return what the epochs after `begin` take, up to `end`, which counts from 1."""
        each = self.scoring_seconds + self.checkpoint_seconds
        return sum(self.training_seconds[begin:end]) + each * (end - begin)

    def times(self, operations: float) -> RunCost:
        """Return what a run of a network with so many times the operations takes: its steps and its scoring
        take as many times as long."""
        return self.model_copy(
            update={
                "training_seconds": tuple(operations * each for each in self.training_seconds),
                "scoring_seconds": operations * self.scoring_seconds,
            }
        )


# --- how fast it trains --------------------------------------------------------------------------------

Format = Literal["fp32", "tf32", "bf16", "fp16"]

# Another way to compute must be so many times as fast as the usual one: timings of one moment differ by less
MARGIN = 1.15
# Images of training from which on steps are timed on a GPU: at 26,000 a second, the most that was measured in
# batches of 128, they take 15 minutes, of which a way that is faster by MARGIN saves two: the time that
# timing takes (docs/decisions/0057)
GPU_IMAGES = 24_000_000

AT_ONCE = 8  # so many trials begin before the first has compiled: most machines with GPUs have 8 at most


class Speed(Spec):
    """How fast a network trains in one number format and memory layout."""

    number_format: Format
    channels_last: bool
    images_per_second: Annotated[float, Field(gt=0.0)]
    # None: the network was not compiled for this
    compile_seconds: Annotated[float, Field(ge=0.0)] | None = None
    by_blocks: bool = False  # it was compiled by blocks
    again_seconds: Annotated[float, Field(ge=0.0)] | None = None  # compiling again, with the code on the disk

    @property
    def way(self) -> str:
        """The number format and the layout in words."""
        return f"{self.number_format} {'channels_last' if self.channels_last else 'contiguous'}"

    def __str__(self) -> str:
        return f"{self.way}{self._compiled} {self.images_per_second:,.3g}"

    def compiling(self, trials: int) -> float | None:
        """Return the seconds that so many trials compile, all together; None if the network was not compiled.

        Each of the first AT_ONCE compiles for itself, and the others find the code on the disk.
        """
        if self.compile_seconds is None:
            return None
        first = min(trials, AT_ONCE)
        again = self.compile_seconds if self.again_seconds is None else self.again_seconds
        return first * self.compile_seconds + (trials - first) * again

    @property
    def _compiled(self) -> str:
        if self.compile_seconds is None:
            return ""
        again = "" if self.again_seconds is None else f" and again in {self.again_seconds:.0f} s"
        return f" compiled{' by blocks' * self.by_blocks} in {self.compile_seconds:.0f} s{again}"


def fastest(speeds: Sequence[Speed]) -> Speed:
    """Return the fastest without compiling, or the usual way, which is the first, if that is nearly as
    fast."""
    usual = speeds[0]
    eager = [each for each in speeds if each.compile_seconds is None]
    best = max(eager, key=lambda each: each.images_per_second)
    return best if best.images_per_second > MARGIN * usual.images_per_second else usual


def pays_to_time(device_kind: str, images: int) -> bool:
    """Whether to time steps before so many images are trained on: on a CPU always, which takes seconds."""
    return device_kind != "cuda" or images >= GPU_IMAGES


def pays_to_compile(speeds: Sequence[Speed], images: int, trials: int = 1) -> bool:
    """Whether compiling saves at least twice its own time in trials that train on so many images together."""
    eager = fastest(speeds)
    return any(
        images / eager.images_per_second - images / each.images_per_second > 2 * compiling
        for each in speeds
        if (compiling := each.compiling(trials)) is not None
    )
