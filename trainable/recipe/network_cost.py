"""Holds what a network costs where it trains and answers; `trainable.probes.network_cost` measures it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainable.recipe.base import Spec


class NetworkCost(Spec):
    """Holds what the network of a recipe costs on one device."""

    parameters: Annotated[int, Field(ge=0)]
    """Counts all numbers of the network that an optimizer could adjust, also those that are frozen."""
    latency_ms: Annotated[float, Field(gt=0.0)]
    """Milliseconds from one image to its answer, in evaluation mode and in the recipe's number format."""
    memory_gib: Annotated[float, Field(ge=0.0)]
    """GiB that a process takes in a training step, with weights and optimizer: device memory, or a CPU's."""
