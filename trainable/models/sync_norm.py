"""Computes BatchNorm over the batch of all ranks: on CUDA by torch's kernels for it, elsewhere without.

The kernels are what torch's SyncBatchNorm calls, and need no full-size tensor in single precision. That layer
itself is not used: in every forward pass it looks for ranks without images, so that the host waits for the
device at each layer (pytorch issue 78549); here every rank has images. Nor does it keep what timm puts inside
a BatchNorm.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from trainable.models.layers import BATCH_NORMS
from trainable.ranks import Ranks


def with_sync_norm(model: nn.Module, ranks: Ranks) -> nn.Module:
    """Return the network with every BatchNorm normalising a training batch by the statistics of all ranks.

    Parameters, buffers and their names do not change, nor does evaluation. Every rank must call the network,
    and backward, equally often: each BatchNorm waits for the others once in each direction. In a world of one
    the network is returned as it is; else it is changed in place, unless it is itself a BatchNorm.
    """
    if ranks.world == 1:
        return model
    shared = _SharedRanks(ranks)
    for name, module in list(model.named_modules()):
        if isinstance(module, BATCH_NORMS) and not isinstance(module, SyncedNorm):
            synced = SyncedNorm(module, shared)
            if not name:
                return synced
            model.set_submodule(name, synced)
    return model


class _SharedRanks:
    """The ranks, which a copy of a network (its average, say) shares:
    a process group cannot be copied."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self


class SyncedNorm(nn.modules.batchnorm._BatchNorm):
    """A BatchNorm of any dimension over all ranks, then the layers inside the one that it replaces."""

    def __init__(self, old: nn.modules.batchnorm._BatchNorm, shared: _SharedRanks) -> None:
        tracks = old.running_mean is not None
        super().__init__(old.num_features, old.eps, old.momentum, old.affine, tracks)
        self.weight, self.bias = old.weight, old.bias
        for name, buffer in old.named_buffers(recurse=False):
            setattr(self, name, buffer)
        for name, child in old.named_children():  # timm's BatchNormAct2d: drop, act
            self.add_module(name, child)
        self._forward_hooks.update(old._forward_hooks)  # stochastic depth is one
        self._forward_pre_hooks.update(old._forward_pre_hooks)
        self._shared = shared
        self.train(old.training)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, got {input.dim()}")

    def forward(self, features: Tensor) -> Tensor:
        if not self.training:
            normalised = super().forward(features)
        else:
            normalised = self._by_kernels(features) if features.is_cuda else self._by_functions(features)
        for layer in self.children():
            normalised = layer(normalised)
        return normalised

    def _by_kernels(self, features: Tensor) -> Tensor:
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        normalised: Tensor = NormByKernels.apply(
            features,
            self.weight,
            self.bias,
            self.running_mean,
            self.running_var,
            self._share_of_a_batch(),
            self.eps,
            self._shared.ranks,
        )
        return normalised

    def _by_functions(self, features: Tensor) -> Tensor:
        normalised, mean, variance, count = _OverRanks.apply(
            features, self.weight, self.bias, self.eps, self._shared.ranks
        )
        if self.track_running_stats:
            self._track(mean, variance * (count / (count - 1.0)))
        result: Tensor = normalised
        return result

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor) -> None:
        """Update the moving averages, with the unbiased variance, as torch does."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = self._share_of_a_batch()
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)

    def _share_of_a_batch(self) -> float:
        """Return the weight of the last batch in the running statistics: without momentum, in their mean."""
        if self.momentum is None and self.num_batches_tracked is not None:
            return 1.0 / float(self.num_batches_tracked)
        return self.momentum or 0.0


class _OverRanks(torch.autograd.Function):
    """A normalisation by the mean and variance of all ranks' batches together (arXiv 1502.03167, section 3).

    A rank's loss depends on every rank's images through the statistics, so backward sums over the ranks too.
    The sums are of doubles, one number a channel: a mean that is large against the deviation costs no digits.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, ranks: Ranks
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mean, variance, count = _statistics(features, ranks)
        wide = torch.promote_types(features.dtype, torch.float32)
        normalised = functional.batch_norm(
            features, mean.to(wide), variance.to(wide), weight, bias, training=False, eps=eps
        )
        ctx.save_for_backward(features, weight, mean, (variance + eps).rsqrt(), count)
        ctx.ranks, ctx.bias_dtype = ranks, None if bias is None else bias.dtype
        ctx.mark_non_differentiable(mean, variance, count)
        return normalised, mean, variance, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        features, weight, mean, invstd, count = ctx.saved_tensors
        wide, dimensions = torch.promote_types(features.dtype, torch.float32), _all_but_channels(features)

        def spread(values: Tensor) -> Tensor:
            return values.to(wide).view(1, -1, *[1] * (features.dim() - 2))

        gradient = gradient.to(wide)
        standard = (features.to(wide) - spread(mean)) * spread(invstd)
        over_bias = gradient.sum(dimensions)
        over_weight = (gradient * standard).sum(dimensions)
        totals = ctx.ranks.reduce(torch.cat([over_bias, over_weight]).double()) / count
        along_bias, along_weight = totals.chunk(2)
        scale = invstd if weight is None else invstd * weight.double()
        over_features = (gradient - spread(along_bias) - standard * spread(along_weight)) * spread(scale)
        return (
            over_features.to(features.dtype),
            None if weight is None else over_weight.to(weight.dtype),
            None if ctx.bias_dtype is None else over_bias.to(ctx.bias_dtype),
            None,
            None,
        )


def _statistics(features: Tensor, ranks: Ranks) -> tuple[Tensor, Tensor, Tensor]:
    """Return each channel's mean and (biased) variance [C] and the count of its numbers, over all ranks."""
    wide = torch.promote_types(features.dtype, torch.float32)
    variance, mean = torch.var_mean(features.to(wide), _all_but_channels(features), correction=0)
    variance, mean = variance.double(), mean.double()
    count = mean.new_full((1,), features.numel() // features.shape[1])
    sums = torch.cat([count * mean, count * (variance + mean.square()), count])
    first, second, total = ranks.reduce(sums).split([len(mean), len(mean), 1])
    mean = first / total
    return mean, (second / total - mean.square()).clamp_min(0.0), total


def _all_but_channels(features: Tensor) -> list[int]:
    return [dimension for dimension in range(features.dim()) if dimension != 1]


class NormByKernels(torch.autograd.Function):
    """A normalisation of features [B, C, ...] by all ranks' statistics, which updates running ones, if any,
    in place.

    `momentum` is the weight of this batch in the running statistics. A rank's gradients of weight and bias
    are of its own images; those of its features include what its statistics did to other ranks' losses.
    """

    @staticmethod
    def forward(  # noqa: PLR0913 - torch.autograd hands a function its inputs one by one
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
