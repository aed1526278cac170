"""Parameter groups, and the rate that a batch asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim

from trainable.optim import applied_lr, make_optimizer, parameter_groups
from trainable.specs import optimizers


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.plane_norm = nn.LayerNorm([4, 4])
        self.head = nn.Linear(2, 3)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)


def names(net: nn.Module, group: dict[str, list[nn.Parameter]]) -> set[str]:
    return {
        name for name, each in net.named_parameters() if any(each is member for member in group["params"])
    }


def test_norm_and_bias_are_spared_from_decay_and_frozen_weights_left_out() -> None:
    net = Net()
    decayed, kept = parameter_groups(net, 0.1, decay_norm_and_bias=False)
    assert names(net, decayed) == {"convolution.weight", "head.weight"}
    assert decayed["weight_decay"] == 0.1
    assert names(net, kept) == {
        *("convolution.bias", "head.bias", "norm.weight", "norm.bias"),
        *("plane_norm.weight", "plane_norm.bias"),
    }
    assert kept["weight_decay"] == 0.0


def test_everything_decays_when_asked_to() -> None:
    groups = parameter_groups(Net(), 0.1, decay_norm_and_bias=True)
    assert [group["weight_decay"] for group in groups] == [0.1]
    assert len(groups[0]["params"]) == 8


@pytest.mark.parametrize(
    ("scaling", "expected"), [("linear", 0.4), ("sqrt", 0.2), ("none", 0.1)], ids=["linear", "sqrt", "none"]
)
def test_the_rate_follows_the_batch(scaling: str, expected: float) -> None:
    spec = optimizers.SGD.model_validate({"lr": 0.1, "scaling": scaling})
    assert applied_lr(spec, 1024) == pytest.approx(expected)
    assert applied_lr(spec, 256) == 0.1


Plain = Callable[[list[dict[str, Any]]], optim.Optimizer]
REFERENCES: dict[str, tuple[optimizers.SGD | optimizers.AdamW, Plain]] = {
    "sgd": (
        optimizers.SGD(lr=0.05, momentum=0.8, weight_decay=0.01),
        lambda groups: optim.SGD(groups, lr=0.025, momentum=0.8, nesterov=True),
    ),
    "adamw": (
        optimizers.AdamW(lr=0.01, beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.1, scaling="linear"),
        lambda groups: optim.AdamW(groups, lr=0.005, betas=(0.8, 0.95), eps=1e-6),
    ),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_the_fused_optimizer_walks_as_torchs_plain_one(name: str) -> None:
    spec, plain = REFERENCES[name]
    nets = [Net().double() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [
        make_optimizer(spec, nets[0], batch_size=128),
        plain(parameter_groups(nets[1], spec.weight_decay, decay_norm_and_bias=False)),
    ]
    for step in range(5):
        for net, optimizer in zip(nets, optimizers, strict=True):
            torch.manual_seed(step)
            for parameter in net.parameters():
                parameter.grad = torch.randn_like(parameter) if parameter.requires_grad else None
            optimizer.step()
    for ours, reference in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-12, atol=1e-12)
