"""Connects a Run to the other processes of data-parallel training: this is all that a Run knows of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def _alone(tensor: Tensor) -> Tensor:
    return tensor


@dataclass(frozen=True)
class Ranks:
    """Describes this process as one of `world` that train one model together; the default is a world of one.

    `reduce(tensor)` returns the sum over all ranks, in place or not, of tensors on the device and on the
    host; every rank must call it in the same order. Raises ValueError unless 0 <= rank < world.
    """

    rank: int = 0
    world: int = 1
    reduce: Callable[[Tensor], Tensor] = _alone

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank must be in [0, world = {self.world}), got {self.rank}")

    def share(self, batch: int) -> slice:
        """Returns this rank's slice of a batch:
        whole images, shared as evenly as possible, none padded or dropped."""
        return slice(self.rank * batch // self.world, (self.rank + 1) * batch // self.world)

    def sum_in_place(self, tensors: Sequence[Tensor]) -> None:
        """Replaces each tensor by its sum over ranks, with one reduction per number type."""
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            alike = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = self.reduce(torch.cat([tensor.reshape(-1) for tensor in alike]))
            for tensor, total in zip(alike, flat.split([each.numel() for each in alike]), strict=True):
                tensor.copy_(total.view(tensor.shape))

    def any(self, mine: bool) -> bool:
        """Returns whether `mine` is true on any rank.
        The sum is made on the host: no rank waits for its device."""
        return self._total(int(mine)) > 0

    def from_first(self, number: int) -> int:
        """Returns rank 0's number."""
        return self._total(number if self.rank == 0 else 0)

    def bytes_from_first(self, content: bytes) -> bytes:
        """Returns rank 0's bytes on every rank; the other ranks only have to call this too."""
        if self.world == 1:
            return content
        flat = torch.zeros(self.from_first(len(content)), dtype=torch.uint8)
        if self.rank == 0:
            flat = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else flat
        return self.reduce(flat).numpy().tobytes() if len(flat) else b""

    def copy_from_first(self, tensors: Sequence[Tensor]) -> None:
        """Copies the tensors of rank 0 to every rank."""
        if self.rank != 0:
            for tensor in tensors:
                tensor.zero_()
        self.sum_in_place(tensors)

    def _total(self, number: int) -> int:
        """Returns the sum of all ranks' numbers. It is made in float64, which holds every digit."""
        if self.world == 1:
            return number
        return round(self.reduce(torch.tensor([number], dtype=torch.float64)).item())


ALONE = Ranks()
"""This is a world of one process."""
