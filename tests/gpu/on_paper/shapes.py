"""Tells torch the shapes of what CUDA's BatchNorm kernels return, which it does not know itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import Library


def add_shapes() -> Library:
    """Register the shapes; they hold as long as what is returned lives."""
    library = Library("aten", "IMPL", "Meta")
    for kernel in (
        batch_norm_stats,
        batch_norm_gather_stats_with_counts,
        batch_norm_elemt,
        batch_norm_backward_reduce,
        batch_norm_backward_elemt,
    ):
        library.impl(kernel.__name__, kernel)
    return library


def batch_norm_stats(images: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return _channels(images), _channels(images)


def batch_norm_gather_stats_with_counts(images: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _channels(images), _channels(images)


def batch_norm_elemt(images: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(images)


def batch_norm_backward_reduce(gradient: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _channels(gradient), _channels(gradient), _channels(gradient), _channels(gradient)


def batch_norm_backward_elemt(gradient: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(gradient)


def _channels(images: Tensor) -> Tensor:
    """Return a number for each channel, in single precision or better."""
    wide = torch.promote_types(images.dtype, torch.float32)
    return images.new_empty(images.shape[1], dtype=wide)
