"""Defines what a trial works with: its data, its bench, and the code of whoever searches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import ray

from trainable.bench import Bench
from trainable.data import DataSet
from trainable.tune.carried import NOTHING, PickledCode

Content = TypeVar("Content")


@dataclass(frozen=True)
class Shared(Generic[Content]):
    """A value in Ray's object store, passed by reference: a process fetches it when it calls `get`."""

    reference: Any

    @classmethod
    def put(cls, value: Content) -> Shared[Content]:
        return cls(ray.put(value))

    def get(self) -> Content:
        value: Content = ray.get(self.reference)
        return value


@dataclass(frozen=True)
class WorkerSetup:
    """What every trial of a search works with."""

    data: Shared[DataSet]  # all ranks and trials share one copy on each machine
    # Each rank's bench. It names the kind of device: a trial without a GPU must not use one that it sees. So
    # many processors are reserved as it has threads, and its share of the GPU's memory.
    bench: Bench
    # A batch may take at most this long, and so may making a run; one rank waits for another at most twice as
    # long
    step_seconds: float
    workers: int = 1  # a trial has so many ranks
    code: PickledCode = NOTHING  # a person's own functions: what builds the network, and metrics
    # The images with training and validation drawn anew, by the `data.validation_seed`
    splits: Mapping[int, Shared[DataSet]] = field(default_factory=dict)
