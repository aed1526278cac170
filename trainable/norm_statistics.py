"""BatchNorm's running statistics measured anew, for the weights as they are now.

The running mean of the last steps lags behind weights that move fast: at a high rate a net scores far below
what its own statistics would give it, and the first rung of a search would rank trials by luck. "Precise BN"
of Wu and Johnson, arXiv 2105.07576, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@torch.no_grad()
def measure_norm(model: nn.Module, batches: Iterable[Tensor], autocast: torch.autocast) -> None:
    """Replace running means and variances by their averages over batches of images [B, C, H, W].

    Everything but BatchNorm is in evaluation mode meanwhile, and the whole model afterwards.
    """
    norms = [each for each in model.modules() if isinstance(each, _BatchNorm) and each.track_running_stats]
    if not norms:
        return
    momenta = [each.momentum for each in norms]
    model.eval()
    for each in norms:
        each.reset_running_stats()
        each.momentum = None  # a plain average over the batches
        each.train()
    try:
        for images in batches:
            with autocast:
                model(images)
    finally:
        for each, momentum in zip(norms, momenta, strict=True):
            each.momentum = momentum
        model.eval()
