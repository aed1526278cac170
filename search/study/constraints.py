"""Describes what the network of a trial may cost at most, and says by how much one breaks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from trainable.recipe.base import Spec
from trainable.recipe.network_cost import NetworkCost


class Limit(Spec):
    """The most that a cost may be."""

    max: Annotated[float, Field(gt=0.0)]


class Constraints(Spec):
    """What the network of a trial may cost, as `NetworkCost` counts; None allows anything."""

    latency_ms: Limit | None = None
    parameters: Limit | None = None
    memory_gib: Limit | None = None

    @property
    def limits(self) -> dict[str, float]:
        """The most that a cost may be, by name; empty where anything is allowed."""
        return {name: limit.max for name, limit in self if limit is not None}

    def __str__(self) -> str:
        """Return the limits in words, such as `latency_ms at most 20`; empty without any."""
        return ", ".join(f"{name} at most {shown_cost(most)}" for name, most in self.limits.items())

    def excesses(self, cost: NetworkCost) -> dict[str, float]:
        """Return for each limit by what share of it a cost is above it; 0 or less where it is met.

        Shares can be added: 5 ms above 20 ms count as much as a quarter more parameters than are allowed.
        """
        return {name: getattr(cost, name) / most - 1.0 for name, most in self.limits.items()}

    def broken(self, cost: NetworkCost) -> str | None:
        """Return in words which limits a cost is above, and by how much; None where it meets them all."""
        words = (
            f"{name} {shown_cost(getattr(cost, name))} is {_percent(share)} above "
            f"{shown_cost(self.limits[name])}"
            for name, share in self.excesses(cost).items()
            if share > 0.0
        )
        return ", ".join(words) or None


NO_CONSTRAINTS = Constraints()


def above_limits(excesses: Mapping[str, float]) -> float:
    """Return the sum of the shares that are above limits, as Optuna ranks trials; 0 where all are met."""
    return sum(max(0.0, share) for share in excesses.values())


def shown_cost(value: float) -> str:
    """Return a cost for people: whole numbers in full from a thousand on, three digits below."""
    return f"{value:,.0f}" if value >= 1000.0 else f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{share:,.0%}" if share >= 0.1 else f"{100.0 * share:.2g}%"
