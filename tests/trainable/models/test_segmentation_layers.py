"""Tests heads, groups, rates, freezing and dropout of networks for segmentation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trainable.errors import ModelError
from trainable.models.groups import (
    cut_before_head,
    freeze_body,
    freeze_norm,
    head_parameters,
    layer_groups,
    new_parameters,
    rate_factors,
    set_training,
    unfreeze,
)
from trainable.models.initialise import residual_scales
from trainable.models.make import NetworkEnds, make_model
from trainable.recipe import models as specs
from trainable.recipe.tasks import Segmentation

FCN = specs.TorchvisionModel(name="fcn_resnet50")
DEEPLAB = specs.TorchvisionModel(name="deeplabv3_mobilenet_v3_large")
LITE = specs.TorchvisionModel(name="lraspp_mobilenet_v3_large")
FPN = specs.SmpModel(name="fpn", encoder="mobilenetv3_small_050")
UNET = specs.SmpModel(name="unet", encoder="resnet18")
OURS = specs.UNetSmall(width=4)
ALL = [DEEPLAB, LITE, FPN, UNET, OURS]
LIBRARIES = [DEEPLAB, LITE, FPN, UNET]


def named(spec: object) -> str | None:
    return specs.network_name(spec) if isinstance(spec, specs.ModelSpec) else None  # type: ignore[arg-type]


def make(spec: specs.Model, side: int = 32) -> nn.Module:
    torch.manual_seed(0)
    return make_model(spec, NetworkEnds(classes=5, channels=3, image_size=side), task=Segmentation())


def with_fields(spec: specs.Model, **fields: object) -> specs.Model:
    return spec.model_copy(update=fields)


def names_in(model: nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters()}


def body_of(model: nn.Module) -> set[str]:
    """Return the names of the weights of a backbone or an encoder."""
    return {name for name in names_in(model) if name.startswith(("backbone.", "encoder."))}


@pytest.mark.parametrize(
    ("spec", "layers"),
    [
        (FCN, ["classifier.4", "aux_classifier.4"]),
        (DEEPLAB, ["classifier.4", "aux_classifier.4"]),
        (LITE, ["classifier.low_classifier", "classifier.high_classifier"]),
        (FPN, ["segmentation_head.0"]),
        (OURS, ["head"]),
    ],
    ids=named,
)
def test_the_heads_are_the_layers_that_give_logits(spec: specs.Model, layers: list[str]) -> None:
    model = make(spec)
    assert head_parameters(model) == {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}
    assert all(model.get_parameter(f"{layer}.bias").shape == (5,) for layer in layers)


@pytest.mark.parametrize(
    ("spec", "count"),
    [(FCN, 1 + 16 + 1), (DEEPLAB, 1 + 15 + 1 + 1), (UNET, 1 + 8 + 1), (OURS, 4 + 3 + 1)],
    ids=named,
)
def test_groups_are_those_of_the_backbone_and_all_above_it(spec: specs.Model, count: int) -> None:
    model = make(spec)
    groups = layer_groups(model)
    names = [name for group in groups for name in group]
    assert sorted(names) == sorted(names_in(model))
    assert len(groups) == count
    assert set(groups[-1]) == new_parameters(model)


def test_groups_of_an_encoder_begin_at_its_stem() -> None:
    groups = layer_groups(make(UNET))
    assert groups[0] == [f"encoder.model.{each}" for each in ("conv1.weight", "bn1.weight", "bn1.bias")]
    assert groups[1][0] == "encoder.model.layer1.0.conv1.weight"
    assert groups[-1][0].startswith("decoder.")


@pytest.mark.parametrize("spec", LIBRARIES, ids=named)
def test_a_backbone_has_a_share_of_the_rate_of_what_is_above_it(spec: specs.Model) -> None:
    model = make(spec)
    factors = rate_factors(specs.BackboneRates(factor=0.2), model)
    assert factors.keys() == names_in(model)
    assert {name for name, factor in factors.items() if factor == 0.2} == body_of(model)
    assert {name for name, factor in factors.items() if factor == 1.0} == names_in(model) - body_of(model)


def test_without_a_backbone_all_but_the_head_has_a_share_of_the_rate() -> None:
    factors = rate_factors(specs.BackboneRates(), make(OURS))
    assert {name for name, factor in factors.items() if factor == 1.0} == {"head.weight", "head.bias"}
    assert set(factors.values()) == {0.1, 1.0}


def test_decayed_rates_fall_below_the_decoder() -> None:
    factors = rate_factors(specs.DecayedRates(factor=0.5), make(UNET))
    assert factors["segmentation_head.0.weight"] == factors["decoder.blocks.0.conv1.0.weight"] == 1.0
    assert factors["encoder.model.layer4.1.conv2.weight"] == 0.5
    assert factors["encoder.model.conv1.weight"] == 0.5**9


def trained(model: nn.Module) -> set[str]:
    return {name for name, each in model.named_parameters() if each.requires_grad}


@pytest.mark.parametrize("spec", ALL, ids=named)
def test_a_frozen_backbone_leaves_the_decoder_and_the_head(spec: specs.Model) -> None:
    model = make(spec)
    freeze_body(model)
    assert trained(model) == (head_parameters(model) if spec is OURS else names_in(model) - body_of(model))
    unfreeze(model)
    assert trained(model) == names_in(model)


def moved(model: nn.Module) -> set[str]:
    """Return which buffers a batch changes."""
    before = {name: each.clone() for name, each in model.named_buffers()}
    model(torch.randn(4, 3, 32, 32))
    return {name for name, each in model.named_buffers() if not torch.equal(each, before[name])}


@pytest.mark.parametrize("spec", [DEEPLAB, UNET], ids=named)
def test_norms_above_a_frozen_backbone_go_on(spec: specs.Model) -> None:
    model = make(spec)
    freeze_body(model)
    set_training(model, freeze_norm=False, body_frozen=True)
    above = {name for name, _ in model.named_buffers() if not name.startswith(("backbone.", "encoder."))}
    assert above
    assert moved(model) == above


@pytest.mark.parametrize("spec", ALL, ids=named)
def test_frozen_norms_are_those_of_the_backbone_where_there_is_one(spec: specs.Model) -> None:
    model = make(spec)
    freeze_norm(model)
    set_training(model, freeze_norm=True, body_frozen=False)
    assert not [name for name in moved(model) if spec is OURS or name.startswith(("backbone.", "encoder."))]
    assert not [name for name in trained(model) if name.endswith(("first_norm.weight", "bn1.weight"))]


@pytest.mark.parametrize(("spec", "count"), [(FCN, 2), (DEEPLAB, 2), (FPN, 1)], ids=named)
def test_every_dropout_above_the_backbone_takes_the_recipes_share(spec: specs.Model, count: int) -> None:
    model = make(with_fields(spec, dropout=0.25))
    found = [
        each.p
        for name, each in model.named_modules()
        if isinstance(each, nn.modules.dropout._DropoutNd) and not name.startswith(("backbone.", "encoder."))
    ]
    assert found == [0.25] * count
    assert not [hook for each in model.modules() for hook in each._forward_pre_hooks]


@pytest.mark.parametrize("spec", [LITE, UNET], ids=named)
def test_a_network_without_dropout_drops_from_the_input_of_each_head(spec: specs.Model) -> None:
    model = make(with_fields(spec, dropout=0.25))
    heads = {name.rpartition(".")[0] for name in head_parameters(model)}
    assert all(len(model.get_submodule(head)._forward_pre_hooks) == 1 for head in heads)
    assert model.state_dict().keys() == make(spec).state_dict().keys()


@pytest.mark.slow("builds large networks")
def test_stochastic_depth_is_that_of_the_encoder() -> None:
    from timm.layers.drop import DropPath

    model = make(with_fields(UNET, stochastic_depth=0.3))
    rates = [each.drop_prob for each in model.modules() if isinstance(each, DropPath)]
    assert max(rates) == pytest.approx(0.3)
    below = make(with_fields(FCN, stochastic_depth=0.2))
    assert len([each for each in below.modules() if each._forward_hooks]) == 15  # all blocks but the first


@pytest.mark.parametrize("spec", [DEEPLAB, LITE, OURS], ids=named)
def test_a_backbone_without_branches_to_drop_says_so(spec: specs.Model) -> None:
    with pytest.raises(ModelError, match=r"model\.stochastic_depth: .* has no blocks that can be dropped"):
        make(with_fields(spec, stochastic_depth=0.1))


@pytest.mark.parametrize(("spec", "blocks"), [(FCN, 16), (UNET, 8)], ids=named)
def test_residual_blocks_below_a_decoder_begin_as_the_identity(spec: specs.Model, blocks: int) -> None:
    asked = with_fields(spec, zero_init_residual=True)
    scales = residual_scales(make(asked), asked)
    assert len(scales) == blocks
    assert not any(scale.any() for scale in scales)


@pytest.mark.parametrize("kind", ["kaiming", "xavier", "orthogonal"])
@pytest.mark.parametrize("spec", [LITE, FPN], ids=named)
def test_an_initialisation_draws_every_layer(spec: specs.Model, kind: str) -> None:
    model, usual = make(with_fields(spec, initialisation=kind)), make(spec)
    weights = [name for name, each in model.named_parameters() if each.ndim == 4]
    assert not [name for name in weights if torch.equal(model.get_parameter(name), usual.get_parameter(name))]
    assert not any(model.get_parameter(name).any() for name in head_parameters(model) if "bias" in name)


def test_kaiming_draws_both_heads_small() -> None:
    model = make(with_fields(DEEPLAB, initialisation="kaiming"))
    for name, inputs in (("classifier.4", 256), ("aux_classifier.4", 10)):
        drawn = model.get_parameter(f"{name}.weight")
        assert drawn.shape[1] == inputs
        assert drawn.std().item() == pytest.approx(inputs**-0.5, rel=0.25)


@pytest.mark.parametrize("spec", ALL, ids=named)
def test_no_answer_for_each_pixel_is_cut_before_its_head(spec: specs.Model) -> None:
    """Its features would be as many as its pixels, and the decoder above a frozen backbone is trained."""
    assert cut_before_head(make(spec), torch.rand(2, 3, 32, 32)) is None
