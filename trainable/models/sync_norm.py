"""Computes BatchNorm over the batch of all ranks: on CUDA by torch's kernels for it, elsewhere without."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from trainable.models.layers import BATCH_NORMS
from trainable.models.norm_kernels import NormByKernels
from trainable.ranks import Ranks


def with_sync_norm(model: nn.Module, ranks: Ranks) -> nn.Module:
    """Return the network with every BatchNorm normalising a training batch by the statistics of all ranks.

    Parameters, buffers and their names do not change, nor does evaluation. Every rank must call the network,
    and backward, equally often: each BatchNorm waits for the others once in each direction. In a world of one
    the network is returned as it is; else it is changed in place, unless it is itself a BatchNorm.
    """
    if ranks.world == 1:
        return model
    shared = _Shared(ranks)
    for name, module in list(model.named_modules()):
        if isinstance(module, BATCH_NORMS) and not isinstance(module, SyncedNorm):
            synced = SyncedNorm(module, shared)
            if not name:
                return synced
            model.set_submodule(name, synced)
    return model


class _Shared:
    """The ranks, which a copy of a network (its average, say) shares:
    a process group cannot be copied."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self


class SyncedNorm(nn.modules.batchnorm._BatchNorm):
    """Computes a BatchNorm of any dimension over all ranks,
    then the layers inside the one that it replaces."""

    def __init__(self, old: nn.modules.batchnorm._BatchNorm, shared: _Shared) -> None:
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
        normalised = self._over_ranks(features) if self.training else super().forward(features)
        for layer in self.children():
            normalised = layer(normalised)
        return normalised

    def _over_ranks(self, features: Tensor) -> Tensor:
        return self._by_kernels(features) if features.is_cuda else self._by_functions(features)

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
    """Normalises by the mean and variance of all ranks' batches together (arXiv 1502.03167, section 3).

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
