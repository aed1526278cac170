"""Tests the training step against plain loops: accumulation, clipping, smoothing, mixing, loss scaling."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.trainable.small_runs import (
    CLASSES,
    SIZE,
    curve,
    data_set,
    finished,
    numbers,
    plain_net,
    small_recipe,
)
from trainable.augmentation.mixing import make_mixing
from trainable.augmentation.sizes import size_at
from trainable.data import ArrayPart
from trainable.recipe import Recipe
from trainable.recipe.augmentations import MixingOfLabels
from trainable.recipe.training import NormClipping
from trainable.run import make_run
from trainable.training import schedule, seeds
from trainable.training.run import Run
from trainable.training.seeds import Use

TRAIN = 48
ONE_STEP = {"loop.batch_size": TRAIN, "loop.epochs": 1}
# A step is the rate times the gradient
FROM_REST = {"optimizer.momentum": 0.0, "optimizer.nesterov": False, "optimizer.weight_decay": 0.0}


def run_of(values: dict[str, Any], model: nn.Module | None = None) -> Run:
    return make_run(small_recipe(values), data=data_set(TRAIN), model=model or plain_net())


def weights(run: Run) -> Tensor:
    return torch.cat([each.detach().reshape(-1) for each in run.model.parameters()])


def whole_part(run: Run) -> tuple[Tensor, Tensor]:
    """Return the training part, normalised by hand, in fp64."""
    part = run.parts["train"]
    assert isinstance(part, ArrayPart)
    images, labels = part.tensors()
    mean, std = torch.tensor(run.info.mean), torch.tensor(run.info.std)
    pixels = images.float().sub(255 * mean).div(255 * std)
    return pixels.double(), labels


def plain_loop(run: Run, model: nn.Module, recipe: Recipe) -> list[float]:
    """Do what the recipe says with torch's own pieces; return the losses of the steps."""
    images, labels = whole_part(run)
    rate, losses = recipe.optimizer.lr, []
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, nesterov=True)
    for epoch in range(recipe.loop.epochs):
        for step, chosen in enumerate(run._trainer.order(epoch)):
            progress = epoch + step / 3
            optimizer.param_groups[0]["lr"] = rate * schedule.factor(recipe.schedule, progress, 3, 1 / 3)
            loss = functional.cross_entropy(
                model(images[chosen]), labels[chosen], label_smoothing=recipe.regularisation.label_smoothing
            )
            optimizer.zero_grad()
            loss.backward()
            clipping = recipe.regularisation.clipping
            longest = clipping.max_norm if isinstance(clipping, NormClipping) else 1e9
            nn.utils.clip_grad_norm_(model.parameters(), longest)
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"regularisation.label_smoothing": 0.2},
        {"regularisation.clipping.kind": "norm", "regularisation.clipping.max_norm": 0.05},
        {"schedule.warmup_epochs": 1.0},
    ],
    ids=["bare", "label smoothing", "clipping", "warm-up"],
)
def test_a_run_walks_as_a_plain_loop(values: dict[str, Any]) -> None:
    values = {**values, "optimizer.weight_decay": 0.0}
    run, reference = run_of(values), plain_net()
    losses = plain_loop(run, reference, run.recipe)
    finished(run)
    expected = torch.cat([each.detach().reshape(-1) for each in reference.parameters()])
    torch.testing.assert_close(weights(run), expected, rtol=1e-6, atol=1e-6)
    means = torch.tensor(losses).view(3, 3).mean(1).tolist()
    assert [result.train_loss for result in run.history] == pytest.approx(means, rel=1e-6)


def test_an_epoch_sees_every_image_at_most_once_in_an_order_of_its_own() -> None:
    trainer = run_of({"loop.batch_size": 20})._trainer
    orders = [torch.cat(trainer.order(epoch)).tolist() for epoch in range(3)]
    assert all(len(set(order)) == 40 for order in orders)
    assert orders[0] != orders[1] != orders[2]
    assert torch.cat(trainer.order(1)).tolist() == orders[1]


@pytest.mark.parametrize("micro_batch", [1, 5, 8, 15])
def test_accumulation_equals_the_whole_batch(micro_batch: int) -> None:
    values = {
        "regularisation.clipping.kind": "norm",
        "regularisation.clipping.max_norm": 0.5,
        "regularisation.label_smoothing": 0.1,
        "loop.batch_size": 24,
    }
    whole, parts = run_of(values), run_of({**values, "loop.micro_batch": micro_batch})
    assert parts.micro_batch <= micro_batch
    finished(whole)
    finished(parts)
    torch.testing.assert_close(weights(parts), weights(whole), rtol=0, atol=1e-12)
    for ours, theirs in zip(curve(parts.history), curve(whole.history), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-12)


def test_micro_batches_are_as_few_and_as_equal_as_the_cap_allows() -> None:
    sizes = [len(each) for each in run_of({"loop.batch_size": 16, "loop.micro_batch": 7})._trainer.order(0)]
    assert sizes == [6, 5, 5] * 3


@pytest.mark.parametrize("micro_batch", [None, 6])
def test_the_gradient_is_clipped_once_a_window(micro_batch: int | None) -> None:
    """One step from rest with momentum off moves the weights by exactly rate x norm."""
    values = {
        **FROM_REST,
        "optimizer.lr": 0.5,
        "regularisation.clipping.kind": "norm",
        "regularisation.clipping.max_norm": 1e-3,
        **ONE_STEP,
        "loop.micro_batch": micro_batch,
    }
    run = run_of(values)
    before = weights(run)
    images, labels = whole_part(run)
    net = plain_net()
    functional.cross_entropy(net(images), labels).backward()
    norm = torch.cat([each.grad.reshape(-1) for each in net.parameters() if each.grad is not None]).norm()
    result = run.step()
    assert (weights(run) - before).norm().item() == pytest.approx(0.5 * 1e-3, rel=1e-3)
    assert result.grad_norm == pytest.approx(norm.item(), rel=1e-6)


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_mixed_labels_are_trained_on_and_scored_by_their_shares(kind: str) -> None:
    run = run_of({"augmentation.mixing.kind": kind, "loop.batch_size": TRAIN})
    spec = run.recipe.augmentation.mixing
    assert isinstance(spec, MixingOfLabels)
    mix = make_mixing(spec)
    assert mix is not None
    (order,) = run._trainer.order(0)
    images, labels = (part[order] for part in whole_part(run))
    mixed, targets = mix(images, labels, CLASSES, seeds.generator(run.recipe.loop.seed, Use.MIXING, 0, 0))
    logits = plain_net()(mixed)
    shares = [row[logit.argmax()].item() for row, logit in zip(targets, logits, strict=True)]
    result = run.step()
    assert set(targets.flatten().tolist()) > {0.0, 1.0}
    assert result.train_loss == pytest.approx(
        functional.cross_entropy(logits, targets.double()).item(), rel=1e-5
    )
    assert result.train_accuracy == pytest.approx(sum(shares) / TRAIN, rel=1e-6)


class Scaled(nn.Module):
    """A linear net whose gradients overflow fp16 at the loss scale that torch begins with."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(SIZE * SIZE, 3)
        self.scale = scale

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.scale * images.flatten(1))
        return logits


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_fp16_steps_that_overflow_are_skipped_and_counted(kind: str) -> None:
    values = {"optimizer.kind": kind, "optimizer.lr": 1e-6, "loop.batch_size": 8, "loop.epochs": 1}
    values |= {
        "precision.kind": "fp16",
        "regularisation.clipping.kind": "norm",
        "regularisation.clipping.max_norm": 1e9,
    }  # so that each step is measured
    run = run_of(values, Scaled(4.0))
    twin = run_of({**values, "precision.kind": "fp32"}, Scaled(4.0))
    result, reference = run.step(), twin.step()
    assert 0 < result.skipped_steps < 6
    assert not result.diverged
    assert result.grad_norm == pytest.approx(reference.grad_norm, rel=0.2)  # unscaled; the batches are others
    scaler = run.state_dict()["scaler"]
    assert scaler["scale"] == 65536.0 * 0.5**result.skipped_steps


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_skipped_step_moves_nothing_but_time(kind: str) -> None:
    """The schedule follows the images: it neither waits for a skipped step nor makes up for it."""
    values = {"optimizer.kind": kind, "optimizer.lr": 1e-6, "loop.batch_size": 8, "loop.epochs": 2}
    values |= {
        "schedule.warmup_epochs": 0.5,
        "regularisation.clipping.kind": "norm",
        "regularisation.clipping.max_norm": 1e9,
    }
    scaled = run_of({**values, "precision.kind": "fp16"}, Scaled(4.0))
    plain = run_of({**values, "precision.kind": "fp32"}, Scaled(4.0))
    rates: dict[str, list[float]] = {"scaled": [], "plain": []}
    before = weights(scaled)
    for name, run in (("scaled", scaled), ("plain", plain)):
        run._trainer.step.phases[0].optimizer.register_step_pre_hook(lambda *_: None)
        run.model.register_forward_pre_hook(
            lambda model, _, run=run, name=name: (
                rates[name].append(run._trainer.step.phases[0].optimizer.param_groups[0]["lr"])
                if model.training
                else None
            )
        )
        finished(run)
    assert rates["scaled"] == rates["plain"]
    skipped = sum(result.skipped_steps for result in scaled.history)
    assert skipped > 0
    assert scaled.history[-1].applied_lr == plain.history[-1].applied_lr
    if kind == "adamw":
        counts = {int(each["step"]) for each in scaled.state_dict()["optimizers"][0]["state"].values()}
        assert counts == {12 - skipped}
    assert not torch.equal(weights(scaled), before)


def test_fp16_clips_the_unscaled_gradient() -> None:
    values = {
        "precision.kind": "fp16",
        **FROM_REST,
        "regularisation.clipping.kind": "norm",
        "regularisation.clipping.max_norm": 1e-2,
        **ONE_STEP,
    }
    run = run_of(values, Scaled(1.0))
    before = weights(run)
    result = run.step()
    assert result.skipped_steps == 0
    assert result.grad_norm > 1e-2
    assert (weights(run) - before).norm().item() == pytest.approx(0.1 * 1e-2, rel=1e-2)


def test_bf16_trains_close_to_fp32() -> None:
    ours = finished(run_of({"precision.kind": "bf16"}, Scaled(1.0))).history[-1]
    reference = finished(run_of({}, Scaled(1.0))).history[-1]
    assert ours.train_loss != reference.train_loss
    assert ours.train_loss == pytest.approx(reference.train_loss, rel=0.05)


def test_frozen_weights_stay_as_they_are() -> None:
    net = plain_net()
    net[0].requires_grad_(False)
    before = copy.deepcopy(net[0].state_dict())
    run = finished(run_of({}, net))
    assert torch.equal(run.model.get_submodule("0").state_dict()["weight"], before["weight"])
    assert run.history[-1].train_loss < run.history[0].train_loss


# --- what the recipe says of layers, sizes and momentum -----------------------------------------------


def two_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(SIZE * SIZE, 8), nn.ReLU(), nn.Linear(8, CLASSES)).double()


def test_the_body_waits_frozen_and_joins_the_schedule_where_it_is() -> None:
    values = {"model.freeze_epochs": 2, "loop.epochs": 4, "optimizer.weight_decay": 0.1}
    run = run_of(values, two_layers())
    bodies, heads = (
        [run.model.get_submodule("1").weight.clone()],
        [run.model.get_submodule("3").weight.clone()],
    )
    for _ in range(4):
        run.step()
        bodies.append(run.model.get_submodule("1").weight.clone())
        heads.append(run.model.get_submodule("3").weight.clone())
    assert torch.equal(bodies[0], bodies[1])
    assert torch.equal(bodies[1], bodies[2])
    assert not torch.equal(bodies[2], bodies[3])
    assert not any(torch.equal(a, b) for a, b in itertools.pairwise(heads))
    unfrozen = run_of({**values, "model.freeze_epochs": 0}, two_layers())
    finished(unfrozen)
    assert [each.applied_lr for each in run.history] == [each.applied_lr for each in unfrozen.history]


def test_a_resumed_run_is_frozen_as_the_epoch_says() -> None:
    values = {"model.freeze_epochs": 2, "loop.epochs": 4}
    whole = finished(run_of(values, two_layers()))
    for stop in (1, 2, 3):
        first = run_of(values, two_layers())
        for _ in range(stop):
            first.step()
        second = run_of(values, two_layers())
        second.load_state_dict(first.state_dict())
        assert numbers(finished(second).history) == numbers(whole.history)


def test_layers_below_the_head_move_at_their_own_rates() -> None:
    values = {
        "model.layer_rates.kind": "geometric",
        "model.layer_rates.lowest": 0.01,
        **FROM_REST,
        "schedule.kind": "constant",
        **ONE_STEP,
    }
    slow, even = (
        run_of(values, two_layers()),
        run_of({**values, "model.layer_rates.lowest": 1.0}, two_layers()),
    )
    start = two_layers()
    slow.step()
    even.step()
    for name, ratio in (("1", 0.01), ("3", 1.0)):
        moved = [
            run.model.get_submodule(name).weight - start.get_submodule(name).weight for run in (slow, even)
        ]
        torch.testing.assert_close(moved[0], ratio * moved[1])


def test_images_are_as_large_as_the_stream_of_sizes_says() -> None:
    values = {
        "augmentation.size.kind": "multi_scale",
        "augmentation.size.smallest": 0.5,
        "augmentation.size.largest": 2.0,
        "augmentation.size.every": 1,
        "loop.micro_batch": 8,
    }
    net = nn.Sequential(nn.AdaptiveAvgPool2d(SIZE), plain_net())
    seen: list[int] = []
    net.register_forward_pre_hook(
        lambda model, inputs: seen.append(inputs[0].shape[-1]) if model.training else None
    )
    run = run_of(values, net)
    finished(run)
    spec = run.recipe.augmentation.size
    expected = [
        size_at(spec, SIZE, seed=0, done=3 * epoch + step, steps=9) for epoch in range(3) for step in range(3)
    ]
    assert seen == [size for size in expected for _ in range(2)]
    assert len(set(seen)) > 1


def test_one_cycle_moves_momentum_against_the_rate() -> None:
    run = run_of({"schedule.kind": "onecycle", "loop.epochs": 10}, None)
    momenta = []
    for _ in range(10):
        run.step()
        momenta.append(run._trainer.step.phases[0].optimizer.param_groups[0]["momentum"])
    assert min(momenta) < 0.88 < 0.94 < momenta[-1]
    assert momenta.index(min(momenta)) in (2, 3)


def test_adaptive_clipping_leaves_the_head_alone() -> None:
    clipping = {"regularisation.clipping.kind": "adaptive", "regularisation.clipping.factor": 1e-4}
    values = {**FROM_REST, "schedule.kind": "constant", **ONE_STEP}
    run, free = run_of({**values, **clipping}, two_layers()), run_of(values, two_layers())
    before = copy.deepcopy(run.model.state_dict())
    run.step()
    free.step()
    after = run.model.state_dict()
    body = (after["1.weight"] - before["1.weight"]).norm(dim=1)
    most = 0.1 * 1e-4 * before["1.weight"].norm(dim=1).clamp(min=1e-3)
    assert (body <= most * (1 + 1e-9)).all()
    torch.testing.assert_close(after["3.weight"], free.model.state_dict()["3.weight"])
