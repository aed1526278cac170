"""Tests dropout before the head and stochastic depth: how often, of what, and never in evaluation."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision.ops import StochasticDepth

from trainable.errors import ModelError
from trainable.models.dropping import set_head_dropout
from trainable.models.groups import set_training
from trainable.models.make import NetworkEnds, make_model
from trainable.recipe import models as specs

SMALL = specs.ResNetSmall(width=8, zero_init_residual=False)
RESNET = specs.TorchvisionModel(name="resnet18")


def make(spec: specs.Model, image_size: int = 32, **update: Any) -> nn.Module:
    torch.manual_seed(0)
    return make_model(
        spec.model_copy(update=update), NetworkEnds(classes=5, channels=3, image_size=image_size)
    )


def input_of(layer: nn.Module, run: Callable[[], object]) -> Tensor:
    """Return what the layer computes with, after its hooks."""
    seen: list[Tensor] = []
    with layer.register_forward_hook(lambda _layer, inputs, _output: seen.append(inputs[0])):
        run()
    return seen[0]


@pytest.mark.parametrize(
    "spec", [SMALL, RESNET, specs.TimmModel(name="resnet18")], ids=lambda each: each.kind
)
def test_features_before_the_head_are_dropped_in_training_alone(spec: specs.Model) -> None:
    plain, model = make(spec), make(spec, dropout=0.4)
    assert model.state_dict().keys() == plain.state_dict().keys()
    head = model.get_submodule("head" if spec.kind == "resnet_small" else "fc")
    images = torch.rand(64, 3, 32, 32)
    features = input_of(head, lambda: model.eval()(images))
    torch.testing.assert_close(model(images), plain.eval()(images))
    for each in model.modules():  # the norms stay in evaluation mode, so that features are the same
        each.training = not isinstance(each, nn.BatchNorm2d)
    dropped = input_of(head, lambda: model(images))
    kept = dropped != 0
    assert kept.sum().item() == pytest.approx(0.6 * (features != 0).sum().item(), rel=0.1)
    torch.testing.assert_close(dropped[kept], features[kept] / 0.6)


@pytest.mark.parametrize(
    ("name", "own"), [("mobilenet_v3_small", 1), ("alexnet", 2), ("squeezenet1_1", 1), ("efficientnet_b0", 1)]
)
def test_dropouts_beside_the_head_take_the_probability(name: str, own: int) -> None:
    model = make(specs.TorchvisionModel(name=name), image_size=64, dropout=0.3)
    drops = [each.p for each in model.modules() if isinstance(each, nn.Dropout)]
    assert drops == [0.3] * own
    assert not any(each._forward_pre_hooks for each in model.modules())


def test_no_dropout_said_is_no_change_and_zero_turns_it_off() -> None:
    spec = specs.TorchvisionModel(name="mobilenet_v3_small")
    assert make(spec).classifier[2].p == 0.2
    assert make(spec, dropout=0.0).classifier[2].p == 0.0


def test_copies_and_pickles_of_a_net_drop_too() -> None:
    model = make(SMALL, dropout=0.5, stochastic_depth=0.5)
    images = torch.rand(4, 3, 8, 8)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.manual_seed(1)
        expected = model(images)
        torch.manual_seed(1)
        assert torch.equal(twin(images), expected)
        twin.eval()
        twin.load_state_dict(model.state_dict())
        assert torch.equal(twin(images), twin(images))  # the copy goes by its own mode, not by the model's
        assert not torch.equal(model(images), model(images))


@pytest.mark.parametrize(
    ("spec", "norms"),
    [(specs.ResNetSmall(width=8, depth=14, zero_init_residual=False), "second_norm"), (RESNET, "bn2")],
    ids=["ours", "resnet18"],
)
def test_branches_survive_with_a_probability_that_falls_from_block_to_block(
    spec: specs.Model, norms: str
) -> None:
    model = make(spec, stochastic_depth=0.6)
    branches = [each for name, each in model.named_modules() if name.endswith(norms)]
    set_training(model, freeze_norm=True, body_frozen=False)  # which must not turn it off
    kept: list[float] = []
    hooks = [
        each.register_forward_hook(
            lambda _norm, _inputs, output: kept.append(output.flatten(1).any(1).float().mean().item())
        )
        for each in branches
    ]
    with torch.no_grad():
        model(torch.rand(1000, 3, 4, 4))
    for hook in hooks:
        hook.remove()
    expected = [1 - 0.6 * index / (len(branches) - 1) for index in range(len(branches))]
    assert kept == pytest.approx(expected, abs=0.07)  # more than four standard deviations
    torch.testing.assert_close(
        model.eval()(torch.ones(1, 3, 8, 8)), make(spec).eval()(torch.ones(1, 3, 8, 8))
    )


def test_what_survives_is_scaled_so_that_the_mean_stays() -> None:
    model = make(SMALL, stochastic_depth=0.5)
    norm = model.stages[2][0].second_norm
    features = torch.ones(4000, 32, 1, 1)
    norm.eval()
    with torch.no_grad():
        branch = norm(features)
    assert sorted({round(each, 3) for each in branch[:, 0, 0, 0].tolist()}) == [0.0, 2.0]
    assert branch.mean().item() == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("name", ["efficientnet_b0", "convnext_tiny", "swin_t"])
def test_torchvisions_own_stochastic_depth_takes_the_value(name: str) -> None:
    plain = make(specs.TorchvisionModel(name=name))
    model = make(specs.TorchvisionModel(name=name), stochastic_depth=0.4)
    before, after = (
        torch.tensor([each.p for each in net.modules() if isinstance(each, StochasticDepth)])
        for net in (plain, model)
    )
    assert (after[0], after[-1]) == (0.0, pytest.approx(0.4))
    torch.testing.assert_close(after, before * (0.4 / before.max()))


@pytest.mark.parametrize("name", ["test_vit", "test_efficientnet", "test_resnet"])
def test_timms_stochastic_depth_takes_the_value(name: str) -> None:
    from timm.layers.drop import DropPath

    model = make(specs.TimmModel(name=name), image_size=160, stochastic_depth=0.4)
    drops = [each.drop_prob for each in model.modules() if isinstance(each, DropPath)]
    assert max(drops) == drops[-1] == pytest.approx(0.4)
    make(specs.TimmModel(name=name), image_size=160, stochastic_depth=0.0)


@pytest.mark.parametrize(
    "spec", [specs.TorchvisionModel(name="squeezenet1_1"), specs.TimmModel(name="vgg11")]
)
def test_nets_without_droppable_blocks_are_refused_with_those_that_have_them(
    spec: specs.TorchvisionModel | specs.TimmModel,
) -> None:
    with pytest.raises(ModelError, match=rf"model\.stochastic_depth: .*{spec.name}"):
        make(spec, stochastic_depth=0.1)


def test_a_head_at_the_top_of_a_net_is_found() -> None:
    layers = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
    set_head_dropout(layers, 0.5)
    assert len(layers[1]._forward_pre_hooks) == 1
