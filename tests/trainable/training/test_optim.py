"""Tests optimizers against torch's and the papers' formulas; parameter groups, and the rate for a batch."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

from trainable.recipe import optimizers
from trainable.training.optim import Phase, applied_lr, make_phases, parameter_groups

STEPS = 20
LATE = 7  # at this step the frozen layer thaws

SPECS: dict[str, optimizers.Optimizer] = {
    "sgd": optimizers.SGD(lr=0.05, momentum=0.8, weight_decay=0.01),
    "plain sgd": optimizers.SGD(lr=0.05, momentum=0.0, nesterov=False, weight_decay=0.01),
    "rmsprop": optimizers.RMSProp(lr=0.01, momentum=0.7, alpha=0.8, eps=1e-6, weight_decay=0.1),
    "adam": optimizers.Adam(lr=0.01, beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.1),
    "adamw": optimizers.AdamW(lr=0.01, beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.1),
    "adadelta": optimizers.Adadelta(lr=0.5, rho=0.8, eps=1e-5, weight_decay=0.1),
    "lars": optimizers.LARS(lr=1.0, momentum=0.8, trust=0.02, weight_decay=0.1),
    "nesterov lars": optimizers.LARS(lr=1.0, momentum=0.8, nesterov=True, trust=0.02, weight_decay=0.1),
    "lamb": optimizers.LAMB(lr=0.01, beta1=0.8, beta2=0.95, eps=1e-5, weight_decay=0.1),
}

Plain = Callable[[list[dict[str, Any]], float], optim.Optimizer]
PLAIN: dict[str, Plain] = {
    "sgd": lambda groups, lr: optim.SGD(groups, lr=lr, momentum=0.8, nesterov=True),
    "plain sgd": lambda groups, lr: optim.SGD(groups, lr=lr),
    "rmsprop": lambda groups, lr: optim.RMSprop(groups, lr=lr, momentum=0.7, alpha=0.8, eps=1e-6),
    "adam": lambda groups, lr: optim.Adam(groups, lr=lr, betas=(0.8, 0.95), eps=1e-6),
    "adamw": lambda groups, lr: optim.AdamW(groups, lr=lr, betas=(0.8, 0.95), eps=1e-6),
    "adadelta": lambda groups, lr: optim.Adadelta(groups, lr=lr, rho=0.8, eps=1e-5),
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.plane_norm = nn.LayerNorm([4, 4])
        self.head = nn.Linear(2, 3)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)


def net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net().double()


def give_gradients(model: nn.Module, step: int, thawed: bool = False) -> None:
    """Give noise of all sizes, by the step alone; the frozen layer has none unless `thawed`."""
    generator = torch.Generator().manual_seed(step)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        size = 10.0 ** float(torch.randint(-3, 2, (), generator=generator))
        parameter.grad = noise * size if thawed or not name.startswith("frozen") else None


def walk(model: nn.Module, phase: Phase, steps: Iterable[int], thaws_at: float = math.inf) -> None:
    """Take steps under a schedule of the rate."""
    for step in steps:
        give_gradients(model, step, thawed=step >= thaws_at)
        phase.set(1.0 / (1 + step))
        phase.optimizer.step()


def names(model: nn.Module, parameters: Sequence[nn.Parameter]) -> list[str]:
    named = {id(parameter): name for name, parameter in model.named_parameters()}
    return [named[id(parameter)] for parameter in parameters]


def assert_equal(ours: nn.Module, reference: nn.Module, tolerance: float = 0.0) -> None:
    expected = dict(reference.named_parameters())
    torch.testing.assert_close(dict(ours.named_parameters()), expected, rtol=tolerance, atol=tolerance)


class TestGroups:
    def test_norm_and_bias_are_spared_from_decay_and_frozen_weights_included(self) -> None:
        model = Net()
        decayed, spared = parameter_groups(model, 0.1, decay_norm_and_bias=False)
        assert names(model, decayed["params"]) == ["convolution.weight", "head.weight", "frozen.weight"]
        assert decayed["weight_decay"] == 0.1
        assert names(model, spared["params"]) == [
            *("convolution.bias", "norm.weight", "norm.bias"),
            *("plane_norm.weight", "plane_norm.bias", "head.bias", "frozen.bias"),
        ]
        assert spared["weight_decay"] == 0.0

    def test_everything_decays_when_asked_to(self) -> None:
        groups = parameter_groups(Net(), 0.1, decay_norm_and_bias=True)
        assert [group["weight_decay"] for group in groups] == [0.1]
        assert len(groups[0]["params"]) == 10

    def test_each_factor_of_the_rate_has_its_groups_in_the_models_order(self) -> None:
        model = Net()
        factors = {"convolution.weight": 0.1, "convolution.bias": 0.1, "norm.weight": 0.3}
        groups = parameter_groups(model, 0.1, decay_norm_and_bias=False, rate_factors=factors)
        found = [
            (group["weight_decay"], group["rate_factor"], names(model, group["params"])) for group in groups
        ]
        assert found == [
            (0.1, 0.1, ["convolution.weight"]),
            (0.1, 1.0, ["head.weight", "frozen.weight"]),
            (0.0, 0.1, ["convolution.bias"]),
            (0.0, 0.3, ["norm.weight"]),
            (0.0, 1.0, ["norm.bias", "plane_norm.weight", "plane_norm.bias", "head.bias", "frozen.bias"]),
        ]

    def test_a_factor_of_no_parameter_is_an_error(self) -> None:
        with pytest.raises(ValueError, match=r"rate_factors: .*body\.weight"):
            parameter_groups(Net(), 0.1, decay_norm_and_bias=False, rate_factors={"body.weight": 0.1})


class TestRates:
    @pytest.mark.parametrize(("scaling", "expected"), [("linear", 0.4), ("sqrt", 0.2), ("none", 0.1)])
    def test_the_rate_follows_the_batch(self, scaling: str, expected: float) -> None:
        spec = optimizers.SGD.model_validate({"lr": 0.1, "scaling": scaling})
        assert applied_lr(spec, 1024) == pytest.approx(expected)
        assert applied_lr(spec, 256) == 0.1
        (phase,) = make_phases(spec, Net(), batch_size=1024)
        assert phase.lr == pytest.approx(expected)

    def test_a_phase_gives_each_group_its_share_of_the_schedules_rate(self) -> None:
        spec = optimizers.SGD(lr=0.1)
        (phase,) = make_phases(spec, Net(), batch_size=512, rate_factors={"convolution.weight": 0.25})
        groups = phase.optimizer.param_groups
        assert [group["lr"] for group in groups] == pytest.approx([0.05, 0.2, 0.2])
        phase.set(0.5)
        assert [group["lr"] for group in groups] == pytest.approx([0.025, 0.1, 0.1])
        phase.set(1.0)
        assert [group["lr"] for group in groups] == pytest.approx([0.05, 0.2, 0.2])

    @pytest.mark.parametrize("name", SPECS)
    def test_a_phase_sets_the_momentum_where_there_is_one(self, name: str) -> None:
        (phase,) = make_phases(SPECS[name], Net(), batch_size=256)
        before = copy.deepcopy([{**group, "params": None} for group in phase.optimizer.param_groups])
        phase.set(1.0, 0.6)
        for group, old in zip(phase.optimizer.param_groups, before, strict=True):
            changed = {key for key, value in old.items() if key != "params" and group[key] != value}
            match SPECS[name].kind:
                case "adam" | "adamw" | "lamb":
                    assert changed == {"betas"}
                    assert group["betas"] == (0.6, 0.95)
                case "adadelta":
                    assert changed == set()
                case _:
                    assert changed == {"momentum"}
                    assert group["momentum"] == 0.6

    @pytest.mark.parametrize("name", SPECS)
    def test_accumulating_micro_batches_changes_no_step(self, name: str) -> None:
        """It takes 256 images at once, or 64 four times: the effective batch, hence the rate, is the same."""
        images, targets = torch.randn(256, 5).double(), torch.randn(256, 3).double()
        torch.manual_seed(0)
        whole = nn.Linear(5, 3).double()
        split = copy.deepcopy(whole)
        for model, micro_batch in ((whole, 256), (split, 64)):
            (phase,) = make_phases(SPECS[name], model, batch_size=256)
            for _ in range(3):
                phase.optimizer.zero_grad()
                for some, wanted in zip(images.split(micro_batch), targets.split(micro_batch), strict=True):
                    loss = nn.functional.mse_loss(model(some), wanted) * (micro_batch / 256)
                    loss.backward()
                phase.optimizer.step()
        assert_equal(split, whole, 1e-9)


class TestSteps:
    @pytest.mark.parametrize("name", PLAIN)
    def test_equal_torchs_plain_optimizer_and_a_layer_may_thaw_late(self, name: str) -> None:
        ours, theirs = net(), net()
        (phase,) = make_phases(SPECS[name], ours, batch_size=128)
        groups = parameter_groups(theirs, SPECS[name].weight_decay, decay_norm_and_bias=False)
        reference = PLAIN[name](groups, applied_lr(SPECS[name], 128))
        walk(ours, phase, range(STEPS), thaws_at=LATE)
        walk(theirs, Phase(reference, applied_lr(SPECS[name], 128), 0.0), range(STEPS), thaws_at=LATE)
        assert_equal(ours, theirs, 1e-12)

    @pytest.mark.parametrize("name", ["lars", "nesterov lars"])
    def test_lars_equals_the_papers_formula(self, name: str) -> None:
        spec = SPECS[name]
        assert isinstance(spec, optimizers.LARS)
        ours, theirs = net(), net()
        (phase,) = make_phases(spec, ours, batch_size=128)
        walk(ours, phase, range(STEPS), thaws_at=LATE)
        momenta: dict[str, Tensor] = {}
        for step in range(STEPS):
            give_gradients(theirs, step, thawed=step >= LATE)
            lars_by_hand(theirs, momenta, spec, applied_lr(spec, 128) / (1 + step))
        assert_equal(ours, theirs, 1e-6)

    def test_lamb_equals_the_papers_formula(self) -> None:
        spec = SPECS["lamb"]
        assert isinstance(spec, optimizers.LAMB)
        ours, theirs = net(), net()
        (phase,) = make_phases(spec, ours, batch_size=128)
        walk(ours, phase, range(STEPS))
        moments: dict[str, tuple[Tensor, Tensor]] = {}
        for step in range(STEPS):
            give_gradients(theirs, step)
            lamb_by_hand(theirs, moments, spec, applied_lr(spec, 128) / (1 + step), step + 1)
        assert_equal(ours, theirs, 1e-6)

    @pytest.mark.parametrize("name", SPECS)
    def test_leave_parameters_without_gradients_alone(self, name: str) -> None:
        spec = SPECS[name].model_copy(update={"decay_norm_and_bias": True})
        ours = net()
        frozen = copy.deepcopy(ours.frozen)
        (phase,) = make_phases(spec, ours, batch_size=256)
        walk(ours, phase, range(LATE))
        assert_equal(ours.frozen, frozen)
        walk(ours, phase, range(LATE, STEPS), thaws_at=LATE)
        assert not any(
            torch.equal(new, old)
            for new, old in zip(ours.frozen.parameters(), frozen.parameters(), strict=True)
        )

    @pytest.mark.parametrize("name", SPECS)
    def test_go_on_bit_for_bit_from_a_saved_state(self, name: str) -> None:
        through, stopped = net(), net()
        (phase,) = make_phases(SPECS[name], through, batch_size=256)
        walk(through, phase, range(STEPS), thaws_at=LATE)
        (first,) = make_phases(SPECS[name], stopped, batch_size=256)
        walk(stopped, first, range(10), thaws_at=LATE)
        resumed = net(1)
        resumed.load_state_dict(stopped.state_dict())
        (second,) = make_phases(SPECS[name], resumed, batch_size=256)
        second.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
        walk(resumed, second, range(10, STEPS), thaws_at=LATE)
        assert_equal(resumed, through)

    @pytest.mark.parametrize("kind", ["rmsprop", "adadelta", "lars", "lamb"])
    def test_read_no_number_from_the_device(self, kind: str) -> None:
        """Tensors on `meta` have no numbers: to read one raises. Torch's fused ones do not run there."""
        model = Net().to("meta")
        (phase,) = make_phases(SPECS[kind], model, batch_size=256)
        for parameter in model.parameters():
            parameter.grad = torch.empty_like(parameter)
        phase.optimizer.step()
        phase.optimizer.step()


@pytest.mark.parametrize("name", ["sgd", "plain sgd", "adam", "adamw"])
def test_a_first_step_that_overflows_leaves_no_trace(name: str) -> None:
    """The first steps of fp16 overflow so, until the loss scale has come down."""
    models = [net(), net()]
    for model, overflows in zip(models, (True, False), strict=True):
        (phase,) = make_phases(SPECS[name], model, batch_size=256)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        scaler.scale(torch.zeros(()))  # the scaler makes its state at its first loss
        for step in [-1, *range(5)] if overflows else range(5):
            give_gradients(model, max(step, 0), thawed=True)
            factor = scaler.get_scale() if step >= 0 else math.inf
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.mul_(factor)
            scaler.unscale_(phase.optimizer)
            scaler.step(phase.optimizer)
            scaler.update()
    assert_equal(models[0], models[1])


class TestAdamThenSGD:
    spec = optimizers.AdamThenSGD(
        lr=0.01, switch_at=0.4, sgd_lr=0.3, momentum=0.7, weight_decay=0.2, sgd_weight_decay=0.01
    )

    def test_is_adamw_and_from_the_switch_on_sgd_each_with_its_own_rate(self) -> None:
        adam, sgd = make_phases(self.spec, Net(), batch_size=1024)
        assert (adam.start, sgd.start) == (0.0, 0.4)
        assert applied_lr(self.spec, 1024) == pytest.approx(0.02)
        assert (adam.lr, sgd.lr) == pytest.approx((0.02, 1.2))
        assert isinstance(adam.optimizer, optim.AdamW)
        assert isinstance(sgd.optimizer, optim.SGD)

    def test_rates_that_do_not_scale_scale_in_neither_phase(self) -> None:
        spec = self.spec.model_copy(update={"scaling": "none"})
        adam, sgd = make_phases(spec, Net(), batch_size=1024)
        assert (adam.lr, sgd.lr) == (0.01, 0.3)

    def test_walks_as_torchs_adamw_and_then_a_fresh_sgd(self) -> None:
        ours, theirs = net(), net()
        adam, sgd = make_phases(self.spec, ours, batch_size=256)
        walk(ours, adam, range(8))
        walk(ours, sgd, range(8, STEPS))
        groups = parameter_groups(theirs, 0.2, decay_norm_and_bias=False)
        walk(theirs, Phase(optim.AdamW(groups, lr=0.01), 0.01, 0.0), range(8))
        groups = parameter_groups(theirs, 0.01, decay_norm_and_bias=False)
        plain = optim.SGD(groups, lr=0.3, momentum=0.7, nesterov=True)
        walk(theirs, Phase(plain, 0.3, 0.4), range(8, STEPS))
        assert_equal(ours, theirs, 1e-12)


def lars_by_hand(model: Net, momenta: dict[str, Tensor], spec: optimizers.LARS, lr: float) -> None:
    """Follow arXiv 1708.03888, algorithm 1; what does not decay takes SGD's plain step."""
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        weights, gradient = parameter.data, parameter.grad
        step = gradient
        if name in ("convolution.weight", "head.weight", "frozen.weight"):
            length, slope = weights.square().sum().sqrt(), gradient.square().sum().sqrt()
            trust = spec.trust * length / (slope + spec.weight_decay * length + 1e-8)
            step = trust * (gradient + spec.weight_decay * weights)
        momenta[name] = spec.momentum * momenta.get(name, torch.zeros_like(weights)) + step
        parameter.data = weights - lr * (
            step + spec.momentum * momenta[name] if spec.nesterov else momenta[name]
        )


def lamb_by_hand(
    model: Net, moments: dict[str, tuple[Tensor, Tensor]], spec: optimizers.LAMB, lr: float, count: int
) -> None:
    """Follow arXiv 1904.00962, algorithm 2, with the whole gradient clipped to a norm of 1 before."""
    found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    length = math.sqrt(sum(float(gradient.square().sum()) for gradient in found))
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        weights, gradient = parameter.data, parameter.grad / max(1.0, length)
        mean, square = moments.get(name, (torch.zeros_like(weights), torch.zeros_like(weights)))
        mean = spec.beta1 * mean + (1 - spec.beta1) * gradient
        square = spec.beta2 * square + (1 - spec.beta2) * gradient**2
        moments[name] = mean, square
        unbiased = mean / (1 - spec.beta1**count), square / (1 - spec.beta2**count)
        update = unbiased[0] / (unbiased[1].sqrt() + spec.eps)
        if name in ("convolution.weight", "head.weight"):
            update = update + spec.weight_decay * weights
            update = update * weights.square().sum().sqrt() / update.square().sum().sqrt()
        parameter.data = weights - lr * update


@pytest.mark.slow("trains in a process of its own")
def test_training_without_compiling_imports_no_compiler() -> None:
    program = """
import sys
from tests.trainable.small_runs import data_set, small_recipe
from trainable.run import make_run

for kind in ("sgd", "rmsprop", "adam", "adamw", "adadelta"):
    run = make_run(small_recipe({"optimizer.kind": kind}), data=data_set())
    run.step()
    run.load_state_dict(run.state_dict())
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])
