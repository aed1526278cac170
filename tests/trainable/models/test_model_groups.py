"""Tests heads, layer groups, their rates, and what is frozen."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

from trainable.errors import ModelError
from trainable.models.groups import (
    freeze_body,
    freeze_norm,
    head_of,
    head_parameters,
    layer_groups,
    rate_factors,
    set_training,
    unfreeze,
)
from trainable.models.layers import BATCH_NORMS, parameters_in
from trainable.models.make import NetworkEnds, make_model
from trainable.models.segmentation_networks import SegmentationNetwork
from trainable.recipe import models as specs
from trainable.recipe.tasks import Segmentation

SMALL = specs.ResNetSmall(width=8)
RESNET = specs.TorchvisionModel(name="resnet18")
VIT = specs.TimmModel(name="vit_tiny_patch16_224")


def make(spec: specs.Model) -> nn.Module:
    return make_model(spec, NetworkEnds(classes=5, channels=3, image_size=32))


def own_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(4, 5)
    )


@pytest.mark.parametrize(
    ("spec", "head"),
    [
        (SMALL, "head"),
        (RESNET, "fc"),
        (specs.TorchvisionModel(name="squeezenet1_1"), "classifier.1"),
        (specs.TorchvisionModel(name="mobilenet_v3_small"), "classifier.3"),
        (VIT, "head"),
        (specs.TimmModel(name="convnext_atto"), "head.fc"),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_the_head_is_what_gives_the_logits(spec: specs.Model, head: str) -> None:
    model = make(spec)
    assert head_of(model) == head
    assert head_parameters(model) == {f"{head}.weight", f"{head}.bias"}
    assert model.get_parameter(f"{head}.bias").shape == (5,)


def test_a_distilled_transformer_has_two_heads() -> None:
    model = make(specs.TimmModel(name="deit_tiny_distilled_patch16_224"))
    assert head_parameters(model) == {"head.weight", "head.bias", "head_dist.weight", "head_dist.bias"}


def test_a_net_without_a_layer_has_no_head() -> None:
    with pytest.raises(ModelError, match="expected a head"):
        head_of(nn.Sequential(nn.ReLU()))


@pytest.mark.slow("builds large networks")
@pytest.mark.parametrize(
    ("spec", "count"),
    [
        (SMALL, 1 + 3 + 1),
        (specs.ResNetSmall(width=8, depth=20), 1 + 9 + 1),
        (RESNET, 1 + 8 + 1),
        (VIT, 1 + 12 + 1),  # timm counts the last norm to the last block
        (specs.TorchvisionModel(name="vit_b_32"), 1 + 12 + 1),
        (specs.TorchvisionModel(name="convnext_tiny"), 1 + 18 + 3 + 1),  # three downsampling layers
        (None, 3),
    ],
    ids=["resnet_small-8", "resnet_small-20", "resnet18", "vit_tiny", "vit_b_32", "convnext", "own"],
)
def test_groups_hold_every_parameter_once_from_the_stem_to_the_head(
    spec: specs.Model | None, count: int
) -> None:
    model = own_net() if spec is None else make(spec)
    groups = layer_groups(model)
    names = [name for group in groups for name in group]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    assert len(groups) == count
    assert set(groups[-1]) == head_parameters(model)


def test_groups_of_a_resnet_are_its_stem_its_blocks_and_its_head() -> None:
    groups = layer_groups(make(RESNET))
    assert groups[0] == ["conv1.weight", "bn1.weight", "bn1.bias"]
    blocks = [f"layer{stage}.{block}." for stage in (1, 2, 3, 4) for block in (0, 1)]
    assert all(
        name.startswith(block) for block, group in zip(blocks, groups[1:-1], strict=True) for name in group
    )


@pytest.mark.slow("builds large networks")
def test_positions_and_class_tokens_belong_to_the_stem() -> None:
    groups = layer_groups(make(specs.TorchvisionModel(name="vit_b_32")))
    assert set(groups[0]) == {"class_token", "encoder.pos_embedding", "conv_proj.weight", "conv_proj.bias"}


@pytest.mark.parametrize("spec", [SMALL, RESNET, VIT], ids=["ours", "resnet18", "vit"])
def test_geometric_rates_rise_in_equal_ratios_to_one_at_the_head(spec: specs.Model) -> None:
    model = make(spec)
    factors = rate_factors(specs.GeometricRates(lowest=0.04), model)
    by_group = [factors[group[0]] for group in layer_groups(model)]
    assert factors.keys() == dict(model.named_parameters()).keys()
    assert (by_group[0], by_group[-1]) == (pytest.approx(0.04), 1.0)
    ratios = [upper / lower for lower, upper in pairwise(by_group)]
    assert ratios == pytest.approx([ratios[0]] * len(ratios))


def test_decayed_rates_fall_by_the_factor_from_group_to_group() -> None:
    model = make(VIT)
    factors = rate_factors(specs.DecayedRates(factor=0.75), model)
    assert factors["head.weight"] == 1.0
    assert factors["blocks.11.mlp.fc1.weight"] == 0.75
    assert factors["blocks.0.mlp.fc1.weight"] == pytest.approx(0.75**12)
    assert factors["pos_embed"] == pytest.approx(0.75**13)


def test_uniform_rates_are_one_even_for_a_net_without_a_head() -> None:
    assert rate_factors(specs.UniformRates(), nn.Sequential(nn.BatchNorm2d(3))) == {
        "0.weight": 1,
        "0.bias": 1,
    }


def trained(model: nn.Module) -> set[str]:
    return {name for name, each in model.named_parameters() if each.requires_grad}


def moved_by_a_batch(model: nn.Module) -> set[str]:
    """Return which buffers a batch changes."""
    before = copy.deepcopy(dict(model.named_buffers()))
    model(torch.randn(4, 3, 32, 32))
    return {name for name, each in model.named_buffers() if not torch.equal(each, before[name])}


@pytest.mark.parametrize("spec", [SMALL, RESNET, VIT], ids=["ours", "resnet18", "vit"])
def test_a_frozen_body_trains_the_head_alone_and_thaws_whole(spec: specs.Model) -> None:
    model = make(spec)
    everything = trained(model)
    freeze_body(model)
    assert trained(model) == head_parameters(model)
    unfreeze(model)
    assert trained(model) == everything


def test_what_the_model_froze_itself_stays_frozen() -> None:
    model = make(SMALL)
    model.stem.weight.requires_grad_(False)
    wanted = trained(model)
    for _ in range(2):  # freezing twice is freezing once
        freeze_body(model)
    unfreeze(model)
    unfreeze(model)
    assert trained(model) == wanted


@pytest.mark.parametrize("body_first", [True, False])
def test_frozen_norms_stay_frozen_when_the_body_thaws(body_first: bool) -> None:
    model = make(SMALL)
    norms = {name for name, _ in model.named_parameters() if "norm" in name or "shortcut.1" in name}
    everything = trained(model)
    steps = [freeze_body, freeze_norm] if body_first else [freeze_norm, freeze_body]
    for step in steps:
        step(model)
    unfreeze(model)
    assert trained(model) == everything - norms


def test_gradients_of_what_is_frozen_are_gone() -> None:
    model = make(SMALL)
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    freeze_body(model)
    assert {name for name, each in model.named_parameters() if each.grad is not None} == head_parameters(
        model
    )


@pytest.mark.parametrize(("norm", "body"), [(True, False), (False, True), (True, True)])
def test_frozen_norms_keep_their_statistics_in_training(norm: bool, body: bool) -> None:
    model = make(specs.TorchvisionModel(name="mobilenet_v3_small"))
    set_training(model, freeze_norm=norm, body_frozen=body)
    assert model.training
    assert model.classifier[2].training  # dropout is not frozen
    assert moved_by_a_batch(model) == set()
    set_training(model, freeze_norm=False, body_frozen=False)
    assert moved_by_a_batch(model) == dict(model.named_buffers()).keys()


@pytest.mark.parametrize(
    "spec",
    [specs.SmpModel(encoder="resnet18"), specs.TorchvisionModel(name="lraspp_mobilenet_v3_large")],
    ids=["smp", "torchvision"],
)
def test_frozen_norms_of_a_segmentation_are_those_of_its_backbone(spec: specs.Model) -> None:
    model = make_model(spec, NetworkEnds(classes=3, channels=3, image_size=64), task=Segmentation())
    assert isinstance(model, SegmentationNetwork)
    backbone, norms = f"{model.backbone_name}.", parameters_in(model, BATCH_NORMS)
    new = {name for name in norms if not name.startswith(backbone)}
    assert norms > new > set()
    freeze_norm(model)
    assert trained(model) & norms == new
    set_training(model, freeze_norm=True, body_frozen=False)
    moved = moved_by_a_batch(model)
    assert moved
    assert not [name for name in moved if name.startswith(backbone)]
