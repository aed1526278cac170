"""Computes activations again in the backward pass instead of storing them: less memory, more time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainable.errors import ModelError
from trainable.models.layers import batch_norms, repeated_blocks


def checkpoint_blocks(model: nn.Module) -> int:
    """Make each repeated block of a network recompute its activations in backward; return how many blocks.

    Chen et al., arXiv 1604.06174. Loss, gradients, running statistics and the random numbers of dropout do
    not change; nor do names in the state dict, copies and pickles. A step takes about a third more time, and
    memory for one block instead of all. Raises ModelError if nothing repeats.
    """
    blocks = repeated_blocks(model)
    if not blocks:
        raise ModelError(
            f"{type(model).__name__}: expected blocks in an nn.Sequential or nn.ModuleList, to recompute "
            "their activations in the backward pass; it has none"
        )
    for block in blocks.values():
        block.forward = Recomputed(block)
    return len(blocks)


class Recomputed:
    """A block's `forward` that stores only its inputs; it knows the block, so that a copy knows the copy."""

    def __init__(self, block: nn.Module) -> None:
        self.block = block

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._forward(*inputs, **options)
        own = [
            list(each) if isinstance(each, list) else each for each in inputs
        ]  # densenet's list grows later
        if (
            torch.compiler.is_compiling()
        ):  # takes no contexts, and updates buffers once, at the end of forward
            return checkpoint(self._forward, *own, use_reentrant=False, **options)
        return checkpoint(self._forward, *own, use_reentrant=False, context_fn=self._contexts, **options)

    def _forward(self, *inputs: Any, **options: Any) -> Any:
        return type(self.block).forward(self.block, *inputs, **options)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _statistics_kept(self.block)


@contextmanager
def _statistics_kept(block: nn.Module) -> Iterator[None]:
    """Let a block's BatchNorms update copies of their buffers while the block is computed again.

    To track nothing meanwhile would be simpler, but then autograd stores other tensors than the first time,
    which `checkpoint` refuses.
    """
    kept = [(norm, dict(norm.named_buffers(recurse=False))) for norm in batch_norms(block) if norm.training]
    for norm, buffers in kept:
        for name, buffer in buffers.items():
            setattr(norm, name, buffer.clone())
    try:
        yield
    finally:
        for norm, buffers in kept:
            for name, buffer in buffers.items():
                setattr(norm, name, buffer)
