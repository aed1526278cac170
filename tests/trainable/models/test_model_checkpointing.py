"""Tests that recomputed activations give the same numbers from less memory."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from trainable.errors import ModelError
from trainable.models.checkpointing import Recomputed, checkpoint_blocks
from trainable.models.make import NetworkEnds, make_model
from trainable.recipe import models as specs

SMALL = specs.ResNetSmall(width=8, depth=14, zero_init_residual=False, dropout=0.2, stochastic_depth=0.3)
CASES = [
    (SMALL, 32, 6),
    (specs.TorchvisionModel(name="resnet18"), 32, 8),
    (specs.TorchvisionModel(name="mobilenet_v3_small"), 32, 11),
    pytest.param(
        specs.TorchvisionModel(name="densenet121"), 32, 58, marks=pytest.mark.slow("58 blocks, 8 passes")
    ),
    (specs.TimmModel(name="test_vit", stochastic_depth=0.2), 32, 6),
    (specs.TimmModel(name="test_resnet"), 32, 4),
    (specs.TimmModel(name="test_efficientnet"), 32, 5),
    (specs.TimmModel(name="regnetx_002"), 32, 4),
]


def make(spec: specs.Model, image_size: int) -> nn.Module:
    torch.manual_seed(0)
    return make_model(spec, NetworkEnds(classes=5, channels=3, image_size=image_size))


def step(model: nn.Module, image_size: int) -> tuple[Tensor, int]:
    """Compute a batch's gradients; return its loss and how many numbers were kept for them."""
    torch.manual_seed(1)
    images, kept = torch.rand(4, 3, image_size, image_size), 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    with saved_tensors_hooks(count, lambda tensor: tensor):
        loss = nn.functional.cross_entropy(model(images), torch.arange(4))
    loss.backward()
    return loss.detach(), kept


@pytest.mark.parametrize(("spec", "size", "blocks"), CASES, ids=lambda each: getattr(each, "name", None))
def test_loss_gradients_and_statistics_are_the_same_and_less_is_kept(
    spec: specs.Model, size: int, blocks: int
) -> None:
    plain = make(spec, size)
    model = copy.deepcopy(plain)
    assert checkpoint_blocks(model) == blocks
    for _ in range(2):
        (loss, kept), (expected, kept_before) = step(model, size), step(plain, size)
        assert torch.equal(loss, expected)
    assert kept < 0.6 * kept_before
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.equal(ours.grad, theirs.grad), name
    assert model.state_dict().keys() == plain.state_dict().keys()
    for (name, our), their in zip(model.named_buffers(), plain.buffers(), strict=True):
        assert torch.equal(our, their), name


def test_a_copy_or_pickle_computes_with_its_own_weights() -> None:
    model = make(SMALL, 8).eval()
    checkpoint_blocks(model)
    images = torch.rand(2, 3, 8, 8)
    before = model(images)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with torch.no_grad():
            for parameter in twin.stages.parameters():
                parameter.mul_(1.5)
        assert not torch.equal(twin(images), before)
        assert torch.equal(model(images), before)
        assert isinstance(twin.stages[0][0].forward, Recomputed)


def test_statistics_are_tracked_again_after_a_step() -> None:
    model = make(SMALL, 8)
    checkpoint_blocks(model)
    step(model, 8)
    norms: list[Any] = [each for each in model.modules() if isinstance(each, nn.BatchNorm2d)]
    assert all(each.track_running_stats and each.num_batches_tracked == 1 for each in norms)


@pytest.mark.slow("compiles networks")
def test_a_compiled_net_counts_a_batch_once_too() -> None:
    plain = make(SMALL.model_copy(update={"dropout": None, "stochastic_depth": None}), 8)
    model = copy.deepcopy(plain)
    checkpoint_blocks(model)
    compiled: Any = torch.compile(model, backend="aot_eager")
    loss, _ = step(compiled, 8)
    torch.testing.assert_close(loss, step(plain, 8)[0])
    for (name, our), their in zip(model.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(our, their, msg=name)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_net_without_blocks_is_refused() -> None:
    with pytest.raises(ModelError, match="expected blocks"):
        checkpoint_blocks(nn.Sequential(nn.Flatten(), nn.Linear(3, 3)))
