"""Connects a Run to the other processes of data-parallel training: this is all that a Run knows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed
from torch.futures import Future


class RankSilent(RuntimeError):
    """An exchange between ranks failed, mostly because another rank has gone or is silent."""


def _alone(tensor: Tensor) -> Tensor:
    return tensor


def _done(tensor: Tensor) -> Future[Tensor]:
    future: Future[Tensor] = Future()
    future.set_result(tensor)
    return future


@dataclass(frozen=True)
class Ranks:
    """This process as one of `world` that train one model together; the default is a world of one.

    Every rank must call these functions in the same order, with tensors alike, on the device or on the host:
    `reduce(tensor)` returns the sum over all ranks, in place or not; `start_reduce(tensor)` returns at once,
    with the future sum; `broadcast(tensor)` returns rank 0's tensor, in place or not. Training steps also
    need torch's default process group, of the same ranks. Raises ValueError unless 0 <= rank < world.
    """

    rank: int = 0
    world: int = 1
    reduce: Callable[[Tensor], Tensor] = _alone
    start_reduce: Callable[[Tensor], Future[Tensor]] = _done
    broadcast: Callable[[Tensor], Tensor] = _alone

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank must be in [0, world = {self.world}), got {self.rank}")

    def share(self, batch: int) -> slice:
        """Return this rank's slice of a batch:
        whole images, shared as evenly as possible, none padded or dropped."""
        return slice(self.rank * batch // self.world, (self.rank + 1) * batch // self.world)

    def batches_of(self, positions: Tensor, size: int) -> Tensor:
        """Return the positions [n] of this rank's batches: every `world`-th batch of `size` positions.

        Cut into batches of this size again, they are whole batches of all positions: no batch is in two
        ranks' shares. A rank may get none.
        """
        return torch.cat([positions[:0], *positions.split(size)[self.rank :: self.world]])

    def shares_of(self, positions: Tensor, size: int, smallest: int) -> Tensor:
        """Return the positions [n] of this rank's batches of `size`: of each `world * size` positions, its
        share.

        All ranks have equally many batches, each of at least `smallest` positions: so layers can exchange
        their statistics in each. What is left, fewer than `world * smallest` positions, is in none.
        """
        together = positions.split(self.world * size)
        whole = [each for each in together if len(each) >= self.world * smallest]
        return torch.cat([positions[:0], *(each[self.share(len(each))] for each in whole)])

    def sum_in_place(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over ranks, with one reduction per number type."""
        _replace(tensors, self.reduce)

    def copy_from_first(self, tensors: Sequence[Tensor]) -> None:
        """Copy the tensors of rank 0 to every rank."""
        _replace(tensors, self.broadcast)

    def any_of(self, mine: Sequence[bool]) -> tuple[bool, ...]:
        """Return, for each of several answers, whether it is true on any rank.

        The sums are made on the host: no rank waits for its device.
        """
        if self.world == 1:
            return tuple(mine)
        counts = self.reduce(torch.tensor(mine, dtype=torch.float64))
        return tuple(count > 0 for count in counts.tolist())

    def total(self, mine: int) -> int:
        """Return the sum of all ranks' numbers, made on the host in float64, which holds every digit."""
        if self.world == 1:
            return mine
        return round(self.reduce(torch.tensor([mine], dtype=torch.float64)).item())

    def bytes_from_first(self, content: bytes) -> bytes:
        """Return rank 0's bytes on every rank; the other ranks only have to call this too."""
        if self.world == 1:
            return content
        count = int(self.broadcast(torch.tensor([len(content)])).item())
        if self.rank != 0 or not content:
            flat = torch.empty(count, dtype=torch.uint8)
        else:
            flat = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        return self.broadcast(flat).numpy().tobytes() if count else b""


ALONE = Ranks()  # a world of one process


def of_process_group() -> Ranks:
    """Return the ranks of torch's default process group.

    Their functions raise RankSilent where another rank has gone, or has not answered in the group's time, and
    where this rank cannot exchange anything itself.
    """
    return Ranks(
        distributed.get_rank(), distributed.get_world_size(), _all_reduce, _start_all_reduce, _broadcast
    )


def _replace(tensors: Sequence[Tensor], exchange: Callable[[Tensor], Tensor]) -> None:
    """Replace each tensor by what an exchange makes of it, with one exchange per number type."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = exchange(torch.cat([tensor.reshape(-1) for tensor in alike]))
        for tensor, result in zip(alike, flat.split([each.numel() for each in alike]), strict=True):
            tensor.copy_(result.view(tensor.shape))


def _all_reduce(tensor: Tensor) -> Tensor:
    with _silence_named():
        distributed.all_reduce(tensor)
    return tensor


def _broadcast(tensor: Tensor) -> Tensor:
    with _silence_named():
        distributed.broadcast(tensor, src=0)
    return tensor


def _start_all_reduce(tensor: Tensor) -> Future[Tensor]:
    with _silence_named():
        work = distributed.all_reduce(tensor, async_op=True)
    future: Future[Tensor] = work.get_future().then(_summed)
    return future


def _summed(future: Future[list[Tensor]]) -> Tensor:
    with _silence_named():
        return future.value()[0]


@contextmanager
def _silence_named() -> Iterator[None]:
    """Turn the error of a collective into RankSilent."""
    try:
        yield
    except RuntimeError as error:
        raise RankSilent(f"ranks could not exchange tensors: {error}") from error
