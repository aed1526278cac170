"""Sums up an epoch on the device, and says what it came to."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainable.ranks import Ranks
from trainable.training.batches import Batches


@dataclass(frozen=True)
class EpochTotals:
    """What an epoch of training measured."""

    loss: float
    accuracy: float
    grad_norm: float
    skipped_steps: int
    lr: float
    images: int
    seconds: float
    data_seconds: float
    first_step_extra_seconds: float
    micro_batch: int
    lost: bool  # it ended early, as the loss is beyond recovery


class Totals:
    """The sums of an epoch: steps append what they have, and the few readings add it up, in float64."""

    def __init__(self, device: torch.device) -> None:
        self._images = torch.zeros(2, dtype=torch.float64, device=device)
        self._steps = torch.zeros(3, dtype=torch.float64, device=device)
        self._losses: list[Tensor] = []
        self._right: list[Tensor] = []
        self._norms: list[Tensor] = []

    def add_step(self, losses: list[Tensor], right: list[Tensor], norm: Tensor | None) -> None:
        """Add a step's shares of the loss, how right its answers were, and its gradient norm if it was
        measured."""
        self._losses += losses
        self._right += right
        if norm is not None:
            self._norms.append(norm)

    def of_images(self) -> Tensor:
        """Return [2], over this rank's images so far: the loss, the right answers. A copy, on the device."""
        if self._losses:
            self._images[0] = _added(self._images[0], torch.stack(self._losses))
            self._images[1] = _added(self._images[1], torch.cat(self._right))
            self._losses.clear()
            self._right.clear()
        return self._images.clone()

    def begin_with(self, images: Sequence[float], steps: Sequence[float]) -> None:
        """Continue from sums that `of_images` and `of_steps` returned."""
        self._images.copy_(torch.tensor(images, dtype=torch.float64))
        self._steps.copy_(torch.tensor(steps, dtype=torch.float64))

    def gather(self, ranks: Ranks) -> None:
        """Move the sums over images of all ranks to rank 0."""
        if ranks.world > 1:
            sums = ranks.reduce(self.of_images())
            self._images.copy_(sums if ranks.rank == 0 else torch.zeros_like(sums))

    def of_steps(self) -> Tensor:
        """Return [3], over the steps so far, alike on every rank: the sum and the count of finite norms, and
        the count of others."""
        if self._norms:
            norms = torch.stack(self._norms).double()
            finite = norms.isfinite()
            self._steps[0] = _added(self._steps[0], norms.where(finite, 0.0))
            self._steps[1] += finite.sum()
            self._steps[2] += (~finite).sum()
            self._norms.clear()
        return self._steps.clone()


def _added(total: Tensor, parts: Tensor) -> Tensor:
    """Return the sum of a total and of all parts.

    They are added in order, so on a CPU its last digit does not depend on whether it was read in between.
    """
    return torch.cat([total[None], parts.double().flatten()]).cumsum(0)[-1]


@dataclass
class Running:
    """How far an epoch has come."""

    totals: Totals
    step: int = 0  # so many are done
    seconds: float = 0.0
    waited_seconds: float = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return plain values. Between the segments of an epoch, rank 0's are those of all ranks."""
        return {
            "step": self.step,
            "images": self.totals.of_images().tolist(),
            "steps": self.totals.of_steps().tolist(),
            "seconds": self.seconds,
            "waited_seconds": self.waited_seconds,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], device: torch.device, ranks: Ranks) -> Running:
        """Return what `state_dict` described on rank 0, shared out so that the ranks' sums are its sums."""
        totals = Totals(device)
        totals.begin_with(state["images"] if ranks.rank == 0 else [0.0, 0.0], state["steps"])
        return cls(totals, state["step"], state["seconds"], state["waited_seconds"])


class Stopwatch:
    """The time of an epoch's training, in seconds, without its pauses.

    It counts from now, or from when the epoch's preparation `began`, and goes on from the seconds `before`.
    """

    def __init__(self, batches: Batches, began: float | None, before: float) -> None:
        self._batches = batches
        self._started = (began or time.perf_counter()) - before
        self._steps = 0
        self._steps_began = self._first_step = 0.0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    @property
    def waited_seconds(self) -> float:
        """So long one waited for batches."""
        return self._batches.waited_seconds

    def begin_steps(self) -> None:
        self._steps_began = self._worked()

    def count_step(self) -> None:
        """Count a step of this process as taken."""
        self._steps += 1
        if self._steps == 1:
            self._first_step = self._worked() - self._steps_began

    @contextmanager
    def stopped(self) -> Iterator[None]:
        stopped = time.perf_counter()
        yield
        self._started += time.perf_counter() - stopped

    @property
    def first_step_extra(self) -> float:
        """By how much the first step took longer than the others on average, waiting for batches aside; 0
        for a single step.

        A GPU's steps are only queued here, but what a first one compiles or tries is done here.
        """
        if self._steps < 2:
            return 0.0
        others = self._worked() - self._steps_began - self._first_step
        return max(0.0, self._first_step - others / (self._steps - 1))

    def _worked(self) -> float:
        return self.seconds - self.waited_seconds
