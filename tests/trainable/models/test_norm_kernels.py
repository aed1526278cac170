"""Tests what is made of torch's CUDA kernels for BatchNorm over ranks, with their definitions on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.library import Library

from tests.trainable.models.test_model_sync_norm import assert_make, layer, on_ranks, steps
from trainable.models.sync_norm import SyncedNorm, with_sync_norm
from trainable.ranks import Ranks


def spread(values: Tensor, features: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (features.dim() - 2))


def others(features: Tensor) -> list[int]:
    return [each for each in range(features.dim()) if each != 1]


def batch_norm_stats(features: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(features, others(features), correction=0)
    return mean, (variance + eps).rsqrt()


def batch_norm_gather_stats_with_counts(
    features: Tensor,
    means: Tensor,
    invstds: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    count, shares = counts.sum(), (counts / counts.sum())[:, None]
    mean = (means * shares).sum(0)
    variance = ((invstds**-2 - eps + (means - mean) ** 2) * shares).sum(0)
    if running_mean is not None and running_var is not None:
        running_mean.lerp_(mean, momentum)
        running_var.lerp_(variance * count / (count - 1), momentum)
    return mean, (variance + eps).rsqrt()


def batch_norm_elemt(
    features: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    standard = (features - spread(mean, features)) * spread(invstd, features)
    scaled = standard if weight is None else standard * spread(weight, features)
    return scaled if bias is None else scaled + spread(bias, features)


def batch_norm_backward_reduce(
    gradient: Tensor,
    features: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    of_features: bool,
    of_weight: bool,
    of_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    assert of_features
    along = gradient.sum(others(features))
    centred = (gradient * (features - spread(mean, features))).sum(others(features))
    none = gradient.new_empty(0)
    return along, centred, centred * invstd if of_weight else none, along.clone() if of_bias else none


def batch_norm_backward_elemt(
    gradient: Tensor,
    features: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    along: Tensor,
    centred: Tensor,
    counts: Tensor,
) -> Tensor:
    assert counts.dtype == torch.int32
    count = counts.sum()
    from_mean = gradient - spread(along / count, features)
    from_both = from_mean - (features - spread(mean, features)) * spread(
        invstd**2 * centred / count, features
    )
    return from_both * spread(invstd if weight is None else invstd * weight, features)


@pytest.fixture
def kernels() -> Iterator[None]:
    """Give the CPU kernels that torch has for CUDA alone, by their definitions (ATen, Normalization.cuh)."""
    library = Library("aten", "IMPL", "CPU")
    library.impl("batch_norm_stats", batch_norm_stats)
    library.impl("batch_norm_gather_stats_with_counts", batch_norm_gather_stats_with_counts)
    library.impl("batch_norm_elemt", batch_norm_elemt)
    library.impl("batch_norm_backward_reduce", batch_norm_backward_reduce)
    library.impl("batch_norm_backward_elemt", batch_norm_backward_elemt)
    yield
    library._destroy()


class ByKernels(SyncedNorm):
    """A norm that takes the kernels on any device."""

    def _over_ranks(self, features: Tensor) -> Tensor:
        return self._by_kernels(features)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", ["2d", "1d", "cumulative", "plain", "timm"])
@pytest.mark.parametrize("shares", [[4, 4], [5, 2, 1]], ids=str)
def test_shares_of_a_batch_give_what_the_whole_gives(kind: str, shares: list[int]) -> None:
    shape = (8, 3) if kind == "1d" else (8, 3, 4, 5)
    generator = torch.Generator().manual_seed(0)
    batches, towards = (
        [torch.randn(shape, generator=generator, dtype=torch.float64) + 3.0 for _ in range(2)]
        for _ in range(2)
    )
    new = layer(kind).double()
    norms = [copy.deepcopy(new) for _ in shares]
    whole = steps(new, batches, towards)

    def work(ranks: Ranks) -> dict[str, Any]:
        norm = with_sync_norm(norms[ranks.rank], ranks)
        norm.__class__ = ByKernels
        mine = [[each.split(shares)[ranks.rank] for each in tensors] for tensors in (batches, towards)]
        return steps(norm, *mine)

    assert_make(on_ranks(len(shares), work), whole)
