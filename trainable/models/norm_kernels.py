"""Computes BatchNorm over the batch of all ranks by torch's own CUDA kernels.

They are what torch's SyncBatchNorm calls, and need no full-size tensor in single precision. That layer itself
is not used: in every forward pass it looks for ranks without images, so that the host waits for the device at
each layer (pytorch issue 78549); here every rank has images. Nor does it keep what timm puts inside a
BatchNorm.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trainable.ranks import Ranks


class NormByKernels(torch.autograd.Function):
    """Normalises features [B, C, ...] by all ranks' statistics, and updates running ones, if any, in place.

    `momentum` is the weight of this batch in the running statistics. A rank's gradients of weight and bias
    are of its own images; those of its features include what its statistics did to other ranks' losses.
    """

    @staticmethod
    def forward(  # torch.autograd hands a function its inputs one by one
        ctx: Any,
        features: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: float,
        eps: float,
        ranks: Ranks,
    ) -> Tensor:
        features = _dense(features)
        means, invstds, counts = _of_all_ranks(*torch.batch_norm_stats(features, eps), features, ranks)
        mean, invstd = torch.batch_norm_gather_stats_with_counts(
            features, means, invstds, running_mean, running_var, momentum, eps, counts
        )
        ctx.save_for_backward(features, weight, mean, invstd, counts.to(torch.int32))
        ctx.ranks, ctx.has_bias = ranks, bias is not None
        return torch.batch_norm_elemt(features, weight, bias, mean, invstd, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, mean, invstd, counts = ctx.saved_tensors
        gradient = _dense(gradient)
        along, along_centred, over_weight, over_bias = torch.batch_norm_backward_reduce(
            gradient, features, mean, invstd, weight, True, weight is not None, ctx.has_bias
        )
        sums = ctx.ranks.reduce(torch.cat([along, along_centred]))
        factor = None if weight is None else weight.to(mean.dtype)
        over_features = torch.batch_norm_backward_elemt(
            gradient,
            features,
            mean,
            invstd,
            factor,
            *sums.chunk(2),
            counts,  # type: ignore[call-arg]  # torch's list of types lacks it
        )
        weights = (over_weight if weight is not None else None, over_bias if ctx.has_bias else None)
        return over_features, *weights, None, None, None, None, None


def _of_all_ranks(
    mean: Tensor, invstd: Tensor, features: Tensor, ranks: Ranks
) -> tuple[Tensor, Tensor, Tensor]:
    """Return all ranks' means and inverse deviations [world, C], and counts of numbers in a channel [world].

    They are gathered by a sum: each rank fills its own row.
    """
    channels = len(mean)
    rows = mean.new_zeros(ranks.world, 2 * channels + 1)
    count = mean.new_full((1,), features.numel() // channels)
    rows[ranks.rank] = torch.cat([mean, invstd, count])
    means, invstds, counts = ranks.reduce(rows).split([channels, channels, 1], dim=1)
    return means, invstds, counts.reshape(-1)


def _dense(features: Tensor) -> Tensor:
    """Return features in a layout that the kernels take: as they are, if it is channels_last."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    kept = formats.get(features.dim())
    if kept is not None and features.is_contiguous(memory_format=kept):
        return features
    return features.contiguous()
