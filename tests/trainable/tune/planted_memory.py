"""A network that runs out of memory where a test wants it to."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor, nn


class Limited(nn.Module):
    """A network with memory for so many images, forward or (with `late`) only backward; else it raises
    `error`."""

    def __init__(self, net: nn.Module, room: int, late: bool = False, error: Exception | None = None) -> None:
        super().__init__()
        self.net, self.room, self.late = net, room, late
        self.error = error or torch.OutOfMemoryError("planted: out of memory")
        self.refused: list[int] = []
        self.held: list[weakref.ref[Tensor]] = []

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(images)
        if self.training and len(images) > self.room:
            if self.late:
                logits.register_hook(lambda gradient: self.refuse(len(images), gradient))
            else:
                self.refuse(len(images), logits)
        return logits

    def refuse(self, count: int, tensor: Tensor) -> None:
        self.refused.append(count)
        self.held.append(weakref.ref(tensor))
        raise type(self.error)(*self.error.args)  # anew: a raised one holds the frames of its last time
