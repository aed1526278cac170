"""What a trial works with: its data, its device, and its share of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import ray

from trainable.data import DataSet

Value = TypeVar("Value")


@dataclass(frozen=True)
class Shared(Generic[Value]):
    """A value in Ray's object store, passed on by reference: a process fetches it when it asks."""

    reference: Any

    @classmethod
    def put(cls, value: Value) -> Shared[Value]:
        return cls(ray.put(value))

    def get(self) -> Value:
        value: Value = ray.get(self.reference)
        return value


@dataclass(frozen=True)
class Seat:
    """What every trial of a search works with; `threads` and `gpu_share` are those of each of its ranks."""

    data: Shared[DataSet]
    """One copy on each machine, for all ranks and trials."""
    device: str
    """"cpu" or "cuda": a trial that was given no GPU must not take one that it sees."""
    threads: int
    """Torch's intra-op threads, and the processors that are reserved."""
    step_seconds: float
    """The longest that an epoch may take, and the making of a run, and that one rank may wait for another."""
    gpu_share: float = 1.0
    """The part of the GPU's memory, in (0, 1]."""
    workers: int = 1
    """Ranks of a trial."""
    download: bool = False
    """Whether torchvision and timm may fetch published weights, once a machine."""
