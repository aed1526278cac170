"""The training step against plain loops: accumulation, clipping, smoothing, mixing, loss scaling."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.trainable.small_runs import CLASSES, SIZE, data_set, numbers, plain_net, small_recipe
from trainable import schedule, seeds
from trainable.augmentation.mixing import make_mixing
from trainable.data import ArrayPart
from trainable.recipe import Recipe
from trainable.run import Run
from trainable.seeds import Use

torch.set_num_threads(1)

TRAIN = 48


def run_of(values: dict[str, Any], model: nn.Module | None = None) -> Run:
    return Run(small_recipe(values), data=data_set(TRAIN), model=model or plain_net())


def finished(run: Run) -> Run:
    while not run.finished:
        run.step()
    return run


def weights(run: Run) -> Tensor:
    return torch.cat([each.detach().reshape(-1) for each in run.model.parameters()])


def whole_part(run: Run) -> tuple[Tensor, Tensor]:
    """The training part normalised by hand, in fp64."""
    part = run.data.train
    assert isinstance(part, ArrayPart)
    images, labels = part.tensors()
    mean, std = torch.tensor(run.data.info.mean), torch.tensor(run.data.info.std)
    pixels = images.float().sub(255 * mean).div(255 * std)
    return pixels.double(), labels


def plain_loop(run: Run, model: nn.Module, recipe: Recipe) -> list[float]:
    """What the recipe says, written out with torch's own pieces; the losses of the steps."""
    images, labels = whole_part(run)
    rate, losses = recipe.optimizer.lr, []
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, nesterov=True)
    for epoch in range(recipe.loop.epochs):
        for step, chosen in enumerate(run._trainer.order(epoch)):
            progress = epoch + step / 3
            optimizer.param_groups[0]["lr"] = rate * schedule.factor(recipe.schedule, progress, 3, 1 / 3)
            loss = functional.cross_entropy(
                model(images[chosen]),
                labels[chosen],
                label_smoothing=recipe.regularisation.label_smoothing,
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), recipe.regularisation.clip_norm or 1e9)
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"regularisation.label_smoothing": 0.2},
        {"regularisation.clip_norm": 0.05},
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
    values = {"regularisation.clip_norm": 0.5, "regularisation.label_smoothing": 0.1, "loop.batch_size": 24}
    whole, parts = run_of(values), run_of({**values, "loop.micro_batch": micro_batch})
    assert parts.micro_batch <= micro_batch
    finished(whole)
    finished(parts)
    torch.testing.assert_close(weights(parts), weights(whole), rtol=0, atol=1e-12)
    for ours, theirs in zip(numbers(parts.history), numbers(whole.history), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-12)


def test_micro_batches_are_as_few_and_as_equal_as_the_cap_allows() -> None:
    sizes = [len(each) for each in run_of({"loop.batch_size": 16, "loop.micro_batch": 7})._trainer.order(0)]
    assert sizes == [6, 5, 5] * 3


@pytest.mark.parametrize("micro_batch", [None, 6])
def test_the_gradient_is_clipped_once_a_window(micro_batch: int | None) -> None:
    """One step from rest with momentum off moves the weights by exactly rate x norm."""
    values = {
        "optimizer.momentum": 0.0,
        "optimizer.nesterov": False,
        "optimizer.weight_decay": 0.0,
        "optimizer.lr": 0.5,
        "regularisation.clip_norm": 1e-3,
        "loop.batch_size": TRAIN,
        "loop.epochs": 1,
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
    mix = make_mixing(run.recipe.augmentation.mixing)
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
    values |= {"precision.kind": "fp16", "regularisation.clip_norm": 1e9}  # so that each step is measured
    run = run_of(values, Scaled(4.0))
    twin = run_of({**values, "precision.kind": "fp32"}, Scaled(4.0))
    result, reference = run.step(), twin.step()
    assert 0 < result.skipped_steps < 6
    assert not result.diverged
    assert result.grad_norm == pytest.approx(reference.grad_norm, rel=0.2)  # unscaled; the batches are others
    scaler = run.state_dict()["scaler"]
    assert scaler["scale"] == 65536.0 * 0.5**result.skipped_steps


def test_fp16_clips_the_unscaled_gradient() -> None:
    values = {
        "precision.kind": "fp16",
        "optimizer.momentum": 0.0,
        "optimizer.nesterov": False,
        "optimizer.weight_decay": 0.0,
        "regularisation.clip_norm": 1e-2,
        "loop.batch_size": TRAIN,
        "loop.epochs": 1,
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
