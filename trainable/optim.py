"""From an optimizer's spec to torch's optimizer: parameter groups and the rate that the batch asks for."""

from __future__ import annotations

import math
from typing import Any, assert_never

from torch import nn, optim

from trainable.recipe import REFERENCE_BATCH
from trainable.specs import optimizers

NORMALISATIONS = (
    nn.modules.batchnorm._NormBase,  # BatchNorm and InstanceNorm of every dimension, SyncBatchNorm
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)


def applied_lr(spec: optimizers.Optimizer, batch_size: int) -> float:
    """The learning rate for an effective batch, from the recipe's rate at 256 images.

    Linear: Goyal et al., arXiv 1706.02677, section 2.1. Square root: Malladi et al., arXiv 2205.10287.
    """
    ratio = batch_size / REFERENCE_BATCH
    match spec.scaling:
        case "linear":
            return spec.lr * ratio
        case "sqrt":
            return spec.lr * math.sqrt(ratio)
        case "none":
            return spec.lr
        case _:
            assert_never(spec.scaling)


def make_optimizer(
    spec: optimizers.Optimizer, model: nn.Module, *, batch_size: int, loss_scaled: bool = False
) -> optim.Optimizer:
    """Torch's optimizer over the model's trainable parameters, at the rate for the effective batch.

    Fused kernels take a third of the time or less, on CPUs too. SGD with `loss_scaled` gradients cannot have
    them: when the first step overflows, as it should, torch's fused SGD keeps a momentum buffer of garbage.
    """
    lr = applied_lr(spec, batch_size)
    groups = parameter_groups(model, spec.weight_decay, spec.decay_norm_and_bias)
    match spec:
        case optimizers.SGD():
            return optim.SGD(
                groups, lr=lr, momentum=spec.momentum, nesterov=spec.nesterov, fused=not loss_scaled
            )
        case optimizers.AdamW():
            return optim.AdamW(groups, lr=lr, betas=(spec.beta1, spec.beta2), eps=spec.eps, fused=True)
        case _:
            assert_never(spec)


def parameter_groups(
    model: nn.Module, weight_decay: float, decay_norm_and_bias: bool
) -> list[dict[str, Any]]:
    """Trainable parameters, those that decay before those that do not; empty groups left out.

    Unless `decay_norm_and_bias`, the parameters of normalisations and every vector (biases, layer scales) are
    spared (He et al., Bag of Tricks, arXiv 1812.01187, section 3.1).
    """
    spared = set() if decay_norm_and_bias else _norm_and_bias(model)
    trainable = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    decayed = [each for name, each in trainable if name not in spared]
    kept = [each for name, each in trainable if name in spared]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _norm_and_bias(model: nn.Module) -> set[str]:
    vectors = {name for name, each in model.named_parameters() if each.ndim <= 1}
    norms = {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        if isinstance(module, NORMALISATIONS)
        for name, _ in module.named_parameters(recurse=False)
    }
    return vectors | norms
