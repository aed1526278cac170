"""Tests the average of weights against its formula."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from trainable.models.ema import Ema, decay_at


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double()


def disturb(model: nn.Module, step: int) -> None:
    torch.manual_seed(step)
    with torch.no_grad():
        for each in [*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())]:
            each.add_(torch.randn_like(each))
    model[1].num_batches_tracked.fill_(step)


def test_weights_and_running_statistics_follow_the_formula() -> None:
    model, decay = net(), 0.6
    ema = Ema(model, decay)
    expected = {name: each.clone() for name, each in model.state_dict().items()}
    for step in range(8):
        disturb(model, step)
        ema.update()
        rate = min(decay, 1 - (1 + step) ** (-2 / 3))
        for name, weights in model.state_dict().items():
            floating = weights.is_floating_point()
            expected[name] = rate * expected[name] + (1 - rate) * weights if floating else weights.clone()
    for name, average in ema.model.state_dict().items():
        torch.testing.assert_close(average, expected[name], rtol=1e-12, atol=1e-12)


def test_the_first_update_copies_and_the_decay_then_climbs_to_its_value() -> None:
    rates = [decay_at(update, 0.9) for update in range(100)]
    assert rates[0] == 0.0
    assert rates == sorted(rates)
    assert rates[7] == pytest.approx(0.75)
    assert rates[-1] == 0.9


def test_the_average_is_apart_from_the_model_and_takes_no_gradient() -> None:
    model = net()
    ema = Ema(model, 0.9)
    before = copy.deepcopy(ema.model.state_dict())
    disturb(model, 1)
    assert all(torch.equal(ema.model.state_dict()[name], each) for name, each in before.items())
    assert not any(each.requires_grad for each in ema.model.parameters())
    assert not ema.model.training


def test_a_saved_average_goes_on_as_if_it_had_never_stopped() -> None:
    model = net()
    unbroken, resumed = Ema(model, 0.99), Ema(net(), 0.99)
    for step in range(6):
        if step == 3:
            resumed = Ema(model, 0.99)
            resumed.load_state_dict(copy.deepcopy(unbroken.state_dict()))
        disturb(model, step)
        unbroken.update()
        resumed.update()
    for ours, theirs in zip(
        resumed.model.state_dict().values(), unbroken.model.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs)
