"""What a network costs where it trains and answers; `network_cost` and `footprint` of `probes` measure it."""

from __future__ import annotations

from typing import Annotated

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
