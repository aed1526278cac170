"""Defines what a trial works with: its data, its device, and its share of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import ray

from trainable.data import DataSet
from trainable.tune.carried import NOTHING, CarriedCode

Value = TypeVar("Value")


@dataclass(frozen=True)
class Shared(Generic[Value]):
    """Holds a value in Ray's object store, passed by reference: a process fetches it when it calls `get`."""

    reference: Any

    @classmethod
    def put(cls, value: Value) -> Shared[Value]:
        return cls(ray.put(value))

    def get(self) -> Value:
        value: Value = ray.get(self.reference)
        return value


@dataclass(frozen=True)
class Seat:
    """Holds what every trial of a search works with; each of its ranks has `threads` and `gpu_share`."""

    data: Shared[DataSet]
    """All ranks and trials share one copy on each machine."""
    device: str
    """This is "cpu" or "cuda": a trial without a GPU must not use one that it sees."""
    threads: int
    """Torch uses so many intra-op threads, and so many processors are reserved."""
    step_seconds: float
    """A batch may take at most this long, and so may making a run;
    one rank waits for another at most twice as long."""
    gpu_share: float = 1.0
    """This is the share of the GPU's memory, in (0, 1]."""
    workers: int = 1
    """A trial has so many ranks."""
    download: bool = False
    """Says whether torchvision and timm may fetch published weights, once a machine."""
    code: CarriedCode = NOTHING
    """These are a person's own functions: what builds the network, and metrics."""
    splits: Mapping[int, Shared[DataSet]] = field(default_factory=dict)
    """These are the same images with training and validation drawn anew, by the `data.validation_seed`."""
