"""Tests BatchNorm over ranks: threads that meet in `reduce` give what one batch gives."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from trainable.models.make import NetworkEnds, make_model
from trainable.models.sync_norm import SyncedNorm, with_sync_norm
from trainable.ranks import ALONE, Ranks
from trainable.recipe import models as specs


class Meeting:
    """Sums of tensors over threads, each of which is a rank."""

    def __init__(self, world: int) -> None:
        self.barrier = threading.Barrier(world, timeout=20)
        self.tensors: list[Tensor | None] = [None] * world

    def ranks(self, rank: int) -> Ranks:
        def reduce(tensor: Tensor) -> Tensor:
            self.tensors[rank] = tensor
            self.barrier.wait()
            total = torch.stack([each for each in self.tensors if each is not None]).sum(0)
            self.barrier.wait()
            return total

        return Ranks(rank, len(self.tensors), reduce)


def on_ranks(world: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """Return what the work of each rank returns."""
    meeting, results, faults = Meeting(world), [None] * world, []

    def run(rank: int) -> None:
        try:
            results[rank] = work(meeting.ranks(rank))
        except BaseException as fault:
            faults.append(fault)
            meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return results


def layer(kind: str) -> nn.Module:
    torch.manual_seed(0)
    match kind:
        case "1d":
            norm: Any = nn.BatchNorm1d(3)
        case "cumulative":
            norm = nn.BatchNorm2d(3, momentum=None)
        case "plain":
            return nn.BatchNorm2d(3, affine=False, track_running_stats=False)
        case "timm":
            norm = BatchNormAct2d(3, inplace=False)
        case _:
            norm = nn.BatchNorm2d(3)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    model: nn.Module = norm
    return model


def steps(norm: nn.Module, batches: list[Tensor], towards: list[Tensor]) -> dict[str, Any]:
    """Return outputs, gradients (of the last batch) and buffers, after training on each batch."""
    outputs = []
    for batch, goal in zip(batches, towards, strict=True):
        norm.zero_grad()
        images = batch.clone().requires_grad_()
        output = norm(images)
        (output * goal).sum().backward()
        outputs.append(output.detach())
    gradients = {name: each.grad for name, each in norm.named_parameters()}
    return {"outputs": outputs, "input": images.grad, **gradients, **dict(norm.named_buffers())}


def assert_make(parts: list[dict[str, Any]], whole: dict[str, Any]) -> None:
    """Assert that the ranks' results of `steps` together are those of the whole batch."""
    for index in range(2):
        outputs = torch.cat([part["outputs"][index] for part in parts])
        torch.testing.assert_close(outputs, whole["outputs"][index])
    torch.testing.assert_close(torch.cat([part["input"] for part in parts]), whole["input"])
    for name in whole.keys() - {"outputs", "input"}:
        if name in ("weight", "bias"):
            torch.testing.assert_close(sum(part[name] for part in parts), whole[name])
        else:
            for part in parts:
                torch.testing.assert_close(part[name], whole[name])


@pytest.mark.parametrize("kind", ["2d", "1d", "cumulative", "plain", "timm"])
@pytest.mark.parametrize("shares", [[4, 4], [5, 2, 1]], ids=str)
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_shares_of_a_batch_give_what_the_whole_gives(kind: str, shares: list[int], mean: float) -> None:
    shape = (8, 3) if kind == "1d" else (8, 3, 4, 5)
    generator = torch.Generator().manual_seed(0)
    batches, towards = (
        [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2)] for _ in range(2)
    )
    batches = [batch + mean for batch in batches]
    new = layer(kind).double()
    norms = [copy.deepcopy(new) for _ in shares]  # drawn here: threads share the generator
    whole = steps(new, batches, towards)

    def work(ranks: Ranks) -> dict[str, Any]:
        norm = with_sync_norm(norms[ranks.rank], ranks)
        mine = [[each.split(shares)[ranks.rank] for each in tensors] for tensors in (batches, towards)]
        return steps(norm, *mine)

    assert_make(on_ranks(len(shares), work), whole)


def test_in_single_precision_a_large_mean_costs_no_digits() -> None:
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(64, 3, 4, 4, generator=generator) + 50.0
    goal = torch.randn(64, 3, 4, 4, generator=generator)
    norms = [layer("2d") for _ in range(2)]
    whole = steps(layer("2d"), [batch], [goal])

    def work(ranks: Ranks) -> dict[str, Any]:
        mine = [[each.chunk(2)[ranks.rank]] for each in (batch, goal)]
        return steps(with_sync_norm(norms[ranks.rank], ranks), *mine)

    parts = on_ranks(2, work)
    torch.testing.assert_close(
        torch.cat([part["outputs"][0] for part in parts]), whole["outputs"][0], rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        torch.cat([part["input"] for part in parts]), whole["input"], rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(parts[0]["running_var"], whole["running_var"])


def small() -> nn.Module:
    torch.manual_seed(0)
    return make_model(specs.ResNetSmall(width=8), NetworkEnds(classes=3, channels=1, image_size=8)).double()


def test_a_whole_net_on_two_ranks_steps_as_on_one() -> None:
    images, labels = torch.rand(8, 1, 8, 8, dtype=torch.float64), torch.arange(8) % 3

    def gradients(model: nn.Module, part: slice) -> dict[str, Tensor]:
        loss = nn.functional.cross_entropy(model(images[part]), labels[part], reduction="sum") / 8
        loss.backward()
        return {name: each.grad for name, each in model.named_parameters() if each.grad is not None}

    models = [small(), small()]
    expected = gradients(small(), slice(None))
    first, second = on_ranks(
        2, lambda ranks: gradients(with_sync_norm(models[ranks.rank], ranks), ranks.share(8))
    )
    for name, gradient in expected.items():
        torch.testing.assert_close(first[name] + second[name], gradient, rtol=1e-8, atol=1e-10)


def test_names_weights_and_evaluation_stay() -> None:
    plain = small()
    plain(torch.rand(8, 1, 8, 8).double())
    model = with_sync_norm(copy.deepcopy(plain), Ranks(0, 2))
    assert list(model.state_dict()) == list(plain.state_dict())
    images = torch.rand(2, 1, 8, 8).double()
    assert torch.equal(model.eval()(images), plain.eval()(images))
    synced = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    assert synced
    assert all(isinstance(each, SyncedNorm) for each in synced)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(images), model(images))
    assert with_sync_norm(model, Ranks(0, 2)).stem_norm is model.stem_norm


def test_stochastic_depth_and_number_formats_stay() -> None:
    spec = specs.ResNetSmall(width=8, stochastic_depth=0.5, dropout=0.2, zero_init_residual=False)
    plain = make_model(spec, NetworkEnds(classes=3, channels=1, image_size=8))
    model = with_sync_norm(copy.deepcopy(plain), Ranks(0, 2, lambda tensor: 2 * tensor))  # two equal ranks
    images = torch.rand(16, 1, 8, 8)
    for enabled in (False, True):
        outputs = []
        for net in (plain, model):
            torch.manual_seed(1)
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                outputs.append(net(images))
        torch.testing.assert_close(outputs[1], outputs[0])


def test_a_world_of_one_changes_nothing() -> None:
    model = small()
    norm = model.stem_norm
    assert with_sync_norm(model, ALONE) is model
    assert model.stem_norm is norm
