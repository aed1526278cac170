"""Measures BatchNorm's running statistics again, for the current weights.

The running mean of the last steps lags behind weights that move fast: at a high rate a net scores far below
what its own statistics would give it, and the first rung of a search would rank trials by luck. This is
"Precise BN" of Wu and Johnson, arXiv 2105.07576, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainable.ranks import ALONE, Ranks

SMALLEST = 2  # a batch of fewer images has no statistics


@torch.no_grad()
def norm_of_one_pixel(model: nn.Module, image: Tensor) -> str | None:
    """Return the name of a BatchNorm that sees one pixel of an image [1, C, H, W], and so has no statistics
    of a single image in training; None if there is none.

    DeepLab has one in its pooled branch (arXiv 1706.05587, section 3.3), and any network where its images
    shrink to one pixel. One that is synchronised has the images of all ranks. Nothing of the model changes.
    """
    was_training = model.training
    norms = {each: name for name, each in model.train().named_modules() if _is_of_one_rank(each)}
    norms = {each: name for each, name in norms.items() if each.training}
    found = list[str]()

    def look(norm: nn.Module, shown: tuple[Tensor, ...]) -> None:
        if shown[0].shape[:1] == (1,) and shown[0].shape[2:].numel() == 1:
            found.append(norms[norm])

    hooks = [each.register_forward_pre_hook(look) for each in norms]
    try:
        if norms:
            model.eval()(image)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return found[0] if found else None


def _is_of_one_rank(layer: nn.Module) -> bool:
    return isinstance(layer, _BatchNorm) and not isinstance(layer, nn.SyncBatchNorm)


@torch.no_grad()
def measure_norm(
    model: nn.Module, batches: Iterable[Tensor], autocast: torch.autocast, ranks: Ranks = ALONE
) -> None:
    """Replace running means and variances by their averages over batches of images [B, C, H, W], those of
    all ranks.

    Each batch counts by its images, and one of a single image, which has no variance, not at all. Only what
    `model.train()` puts into training is measured: a net may have frozen some itself. Everything but
    BatchNorm is in evaluation mode meanwhile, and the whole model afterwards.
    """
    model.train()
    norms = [each for each in model.modules() if isinstance(each, _BatchNorm) and each.track_running_stats]
    norms = [each for each in norms if each.training]
    model.eval()
    if not norms:
        return
    momenta = [each.momentum for each in norms]
    for each in norms:
        each.momentum = 1.0  # a batch then leaves its own statistics
        each.train()
    try:
        _average(model, norms, batches, autocast, ranks)
    finally:
        for each, momentum in zip(norms, momenta, strict=True):
            each.momentum = momentum
        model.eval()


def average_buffers(models: Sequence[nn.Module], ranks: Ranks) -> None:
    """Replace running statistics by their mean over ranks, which differ as ranks see different images."""
    if ranks.world == 1:
        return
    buffers = [each for model in models for each in model.buffers() if each.is_floating_point()]
    ranks.sum_in_place(buffers)
    for each in buffers:
        each.div_(ranks.world)


def _average(
    model: nn.Module,
    norms: Sequence[_BatchNorm],
    batches: Iterable[Tensor],
    autocast: torch.autocast,
    ranks: Ranks,
) -> None:
    pairs = [each for norm in norms for each in (norm.running_mean, norm.running_var)]
    statistics = [each for each in pairs if each is not None]  # the running means and variances themselves
    sums, seen = [torch.zeros_like(each) for each in statistics], 0
    for images in batches:
        if len(images) < SMALLEST:
            continue
        with autocast:
            model(images)
        torch._foreach_add_(sums, statistics, alpha=len(images))
        seen += len(images)
    if ranks.world > 1:
        ranks.sum_in_place(sums)
        seen = ranks.total(seen)
    if seen:
        for each, total in zip(statistics, sums, strict=True):
            each.copy_(total / seen)
